"""Ways for clients to differ: each turns labels into one `Share` of indices a client, and needs no image.

| skew | clients differ in |
|---|---|
| `iid` | nothing |
| `pathological` | which few classes they hold |
| `dirichlet` | how much of each class they hold |
| `pachinko` | the same, over a tree of coarse and fine classes |
| `label_and_feature` | the domain, and on top of it how much of each class |

All chance comes from `seed`, through generators of NumPy's legacy kind and of Python that are private to the call:
what a global ``np.random.seed(seed); random.seed(seed)`` would give, while the global generators stay untouched.
"""

from fedtrain.data.skews.domain import label_and_feature
from fedtrain.data.skews.even import iid
from fedtrain.data.skews.few_classes import pathological
from fedtrain.data.skews.known import CIFAR100_COARSE, known_labels
from fedtrain.data.skews.noise import noise_levels
from fedtrain.data.skews.proportions import dirichlet
from fedtrain.data.skews.ratio import DIGITS_POOL, part_sizes, train_ratio
from fedtrain.data.skews.share import Share, class_counts
from fedtrain.data.skews.subset import misaligned, stratified_cut
from fedtrain.data.skews.tree import pachinko

__all__ = [
    "CIFAR100_COARSE",
    "DIGITS_POOL",
    "Share",
    "class_counts",
    "dirichlet",
    "iid",
    "known_labels",
    "label_and_feature",
    "misaligned",
    "noise_levels",
    "pachinko",
    "part_sizes",
    "pathological",
    "stratified_cut",
    "train_ratio",
]
