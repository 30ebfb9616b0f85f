"""Ways for clients to differ: each turns labels into one `TrainTestIndices` of indices a client, and needs no image.

| skew | clients differ in |
|---|---|
| `iid` | nothing |
| `pathological` | which few classes they hold |
| `dirichlet` | how much of each class they hold |
| `pachinko` | the same, over a tree of coarse and fine classes |
| `draw_label_and_feature_part` | the domain, and on top of it how much of each class |

All chance comes from `seed`, through generators of NumPy's legacy kind and of Python that are private to the call:
what a global ``np.random.seed(seed); random.seed(seed)`` would give, while the global generators stay untouched.
"""

from fedtrain.data.skews.domain import draw_label_and_feature_part
from fedtrain.data.skews.even import partition_iid
from fedtrain.data.skews.few_classes import partition_pathological
from fedtrain.data.skews.known import CIFAR100_COARSE, build_known_labels
from fedtrain.data.skews.noise import compute_noise_levels
from fedtrain.data.skews.proportions import partition_dirichlet
from fedtrain.data.skews.ratio import DIGITS_POOL_SIZE, compute_part_sizes, count_train_samples
from fedtrain.data.skews.share import TrainTestIndices, count_classes
from fedtrain.data.skews.subset import misalign_labels, subsample_stratified
from fedtrain.data.skews.tree import partition_pachinko

__all__ = [
    "CIFAR100_COARSE",
    "DIGITS_POOL_SIZE",
    "TrainTestIndices",
    "count_classes",
    "partition_dirichlet",
    "partition_iid",
    "build_known_labels",
    "draw_label_and_feature_part",
    "misalign_labels",
    "compute_noise_levels",
    "partition_pachinko",
    "compute_part_sizes",
    "partition_pathological",
    "subsample_stratified",
    "count_train_samples",
]
