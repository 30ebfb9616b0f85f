"""Read images and labels from the files that the data sets are published in.

Every reader takes files as hostile: it runs nothing that they hold, bounds what they may claim, and gives either
checked `LabelledImages` or a `DataError`.
"""

from fedtrain.data.readers.archive import extract_archive
from fedtrain.data.readers.cifar import read_cifar10, read_cifar100
from fedtrain.data.readers.fedbn import read_fedbn_digits, read_image_list
from fedtrain.data.readers.idx import read_idx, read_mnist
from fedtrain.data.readers.image_file import read_image
from fedtrain.data.readers.labelled_images import LabelledImages, Split
from fedtrain.data.readers.libsvm import read_libsvm
from fedtrain.data.readers.mat import read_mat
from fedtrain.data.readers.npz import read_npz

__all__ = [
    "LabelledImages",
    "Split",
    "extract_archive",
    "read_cifar10",
    "read_cifar100",
    "read_fedbn_digits",
    "read_idx",
    "read_image",
    "read_image_list",
    "read_libsvm",
    "read_mat",
    "read_mnist",
    "read_npz",
]
