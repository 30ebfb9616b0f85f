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

from fedtrain.data.partition.dirichlet import partition_dirichlet
from fedtrain.data.partition.iid import partition_iid
from fedtrain.data.partition.indices import TrainTestIndices, count_classes
from fedtrain.data.partition.known_labels import CIFAR100_COARSE, build_known_labels
from fedtrain.data.partition.label_and_feature import draw_label_and_feature_part
from fedtrain.data.partition.noise import compute_noise_levels
from fedtrain.data.partition.pachinko import partition_pachinko
from fedtrain.data.partition.pathological import partition_pathological
from fedtrain.data.partition.subset import misalign_labels, subsample_stratified
from fedtrain.data.partition.training_ratio import DIGITS_POOL_SIZE, compute_part_sizes, count_train_samples

__all__ = [
    "CIFAR100_COARSE",
    "DIGITS_POOL_SIZE",
    "TrainTestIndices",
    "build_known_labels",
    "compute_noise_levels",
    "compute_part_sizes",
    "count_classes",
    "count_train_samples",
    "draw_label_and_feature_part",
    "misalign_labels",
    "partition_dirichlet",
    "partition_iid",
    "partition_pachinko",
    "partition_pathological",
    "subsample_stratified",
]
