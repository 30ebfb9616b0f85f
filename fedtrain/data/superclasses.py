"""CIFAR-100's classes by name, and which data sets have coarse classes above their own."""

from __future__ import annotations

from collections.abc import Sequence

from fedtrain.data.partition.known_labels import CIFAR100_COARSE

_NAMES = """
apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can
castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin
elephant flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster
man maple_tree motorcycle mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck
pine_tree plain plate poppy porcupine possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk
skyscraper snail snake spider squirrel streetcar sunflower sweet_pepper table tank telephone television tiger
tractor train trout tulip turtle wardrobe whale willow_tree wolf woman worm
"""

CIFAR100_CLASSES = tuple(_NAMES.split())


def find_superclasses(classes: Sequence[str]) -> tuple[int, ...]:
    """The coarse class of each class, if these are CIFAR-100's by name, in whatever order; none otherwise."""
    if len(classes) < len(CIFAR100_CLASSES) or set(classes) != set(CIFAR100_CLASSES):
        return ()
    return tuple(int(CIFAR100_COARSE[CIFAR100_CLASSES.index(name)]) for name in classes)
