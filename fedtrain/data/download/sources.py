"""Where data sets are published, under which checksums, and on whose terms."""

from __future__ import annotations

from dataclasses import dataclass

from fedtrain.data.datasets import get_dataset_info


@dataclass(frozen=True)
class RemoteFile:
    """A file, the places that have it, and its checksum as published (``md5:...``, ``sha256:...``), if there is one."""

    urls: tuple[str, ...]
    checksum: str | None = None
    size: int | None = None

    @property
    def name(self) -> str:
        """What it is called here and on a mirror: the end of its address."""
        return self.urls[0].rsplit("/", 1)[-1]


@dataclass(frozen=True)
class DownloadSource:
    """Files that together hold some domains."""

    domains: tuple[str, ...]
    files: tuple[RemoteFile, ...]
    note: str = ""
    """What else there is to say where it cannot be fetched."""


def _build_mnist_file(name: str, md5: str) -> RemoteFile:
    homes = ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/")
    return RemoteFile(tuple(home + name for home in homes), f"md5:{md5}")


def _build_usps_file(name: str, md5: str) -> RemoteFile:
    return RemoteFile((f"https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/multiclass/{name}",), f"md5:{md5}")


def _build_svhn_file(name: str, md5: str) -> RemoteFile:
    return RemoteFile(tuple(f"{s}://ufldl.stanford.edu/housenumbers/{name}" for s in ("https", "http")), f"md5:{md5}")


def _build_cifar_file(name: str, md5: str) -> RemoteFile:
    return RemoteFile((f"https://www.cs.toronto.edu/~kriz/{name}",), f"md5:{md5}")


def _build_fedbn_file(name: str, checksum: str | None = None, size: int | None = None) -> RemoteFile:
    return RemoteFile((f"https://huggingface.co/datasets/Jemary/FedBN_Dataset/resolve/main/{name}",), checksum, size)


def _build_domainnet_source(domain: str, size: int, sha256: str, folder: str = "") -> DownloadSource:
    url = f"http://csr.bu.edu/ftp/visda/2019/multi-source/{folder}{domain}.zip"
    images = RemoteFile((url,), f"sha256:{sha256}", size)
    return DownloadSource((domain,), (_build_fedbn_file("domainnet_dataset.zip"), images))


MNIST_FILES = (
    _build_mnist_file("train-images-idx3-ubyte.gz", "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
    _build_mnist_file("train-labels-idx1-ubyte.gz", "d53e105ee54ea40749a09fcbcd1e9432"),
    _build_mnist_file("t10k-images-idx3-ubyte.gz", "9fb629c4189551a2d022fa330f9573f3"),
    _build_mnist_file("t10k-labels-idx1-ubyte.gz", "ec29112dd5afa0611ce80d1b7f02629c"),
)
USPS_FILES = (
    _build_usps_file("usps.bz2", "ec16c51db3855ca6c91edd34d0e9b197"),
    _build_usps_file("usps.t.bz2", "8ea070ee2aca1ac39742fdd1ef5ed118"),
)
SVHN_FILES = (
    _build_svhn_file("train_32x32.mat", "e26dedcc434d2e4c54c9b2d4a06d8373"),
    _build_svhn_file("test_32x32.mat", "eb5a983be6a315427106f1b164d9cef3"),
)
FEDBN_DIGITS_FILE = _build_fedbn_file(
    "digit_dataset.zip", "sha256:6c006e41ce16404aab520895a5c510166453c8b58ed2e7eb7e23e133e1fa4221", 278_200_677
)

DOWNLOAD_SOURCES: dict[str, tuple[DownloadSource, ...]] = {
    "digits": (
        DownloadSource(
            tuple(get_dataset_info("digits").domains),
            (FEDBN_DIGITS_FILE,),
            "three domains have homes of their own: fedco2 data get digits --domain mnist (or svhn, usps)",
        ),
        DownloadSource(("mnist",), MNIST_FILES),
        DownloadSource(("svhn",), SVHN_FILES),
        DownloadSource(("usps",), USPS_FILES),
    ),
    "office": (
        DownloadSource(
            tuple(get_dataset_info("office").domains),
            (_build_fedbn_file("office_caltech_10_dataset.zip"),),
            "the original images have no lasting home; FedBN's archive is the one that we know of",
        ),
    ),
    "domainnet": (
        _build_domainnet_source(
            *("clipart", 1_270_909_081, "f8f248a3e8bbc9868c523ae24e6601b4c2ad102afc60c0efeb4f3255df22354d"),
            folder="groundtruth/",
        ),
        _build_domainnet_source(
            "infograph", 4_338_659_804, "891e14f476317e97b6f06d6498c11d0a5b8d0c8b57210765ed9beb072da611fa"
        ),
        _build_domainnet_source(
            *("painting", 3_679_366_174, "fa47e6d405503ea0286cabd767f176bd30e988b63ddd7b9db16cf030c9770015"),
            folder="groundtruth/",
        ),
        _build_domainnet_source(
            "quickdraw", 459_920_701, "9f37df2a8c3733703dbb35ad9964202a65f675ca30137756457537536b485d84"
        ),
        _build_domainnet_source(
            "real", 6_062_039_589, "d7fe010b430c5b510f85d657d38c4a1924822695fabea4fef57bd00dba251d63"
        ),
        _build_domainnet_source(
            "sketch", 2_633_992_926, "23a7dbae7016b343e934399beaa8a68728fb5e570ebe2c71df9b75cf91c499fc"
        ),
    ),
    "cifar10": (
        DownloadSource(
            ("cifar10",), (_build_cifar_file("cifar-10-python.tar.gz", "c58f30108f718f92721af3b95e74349a"),)
        ),
    ),
    "cifar100": (
        DownloadSource(
            ("cifar100",), (_build_cifar_file("cifar-100-python.tar.gz", "eb9058c3a382ffc7106e4002c42a8d85"),)
        ),
    ),
}

LICENCE_TERMS = {
    "digits": "its owners' terms: MNIST CC BY-SA 3.0, SVHN non-commercial, the others state none",
    "office": "no licence stated; product and web photographs, for research",
    "domainnet": "holds copyrighted images; non-commercial research only",
    "cifar10": "no licence stated; cite Krizhevsky 2009",
    "cifar100": "no licence stated; cite Krizhevsky 2009",
}


def select_sources(name: str, wanted: set[str], prefer_own_source: bool) -> list[DownloadSource]:
    """Those that give the wanted domains; a domain asked for ``alone`` comes from its own home, if it has one."""
    chosen: list[DownloadSource] = []
    for source in sorted(
        DOWNLOAD_SOURCES[get_dataset_info(name).name],
        key=lambda source: len(source.domains) if prefer_own_source else 0,
    ):
        if wanted.intersection(source.domains):
            chosen.append(source)
            wanted = wanted.difference(source.domains)
    return chosen
