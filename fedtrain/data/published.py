"""Where data sets are published, under which checksums, and on whose terms."""

from __future__ import annotations

from dataclasses import dataclass

from fedtrain.data.catalogue import dataset


@dataclass(frozen=True)
class Remote:
    """A file, the places that have it, and its checksum as published (``md5:...``, ``sha256:...``), if there is one."""

    urls: tuple[str, ...]
    checksum: str | None = None
    size: int | None = None

    @property
    def name(self) -> str:
        """What it is called here and on a mirror: the end of its address."""
        return self.urls[0].rsplit("/", 1)[-1]


@dataclass(frozen=True)
class Source:
    """Files that together hold some domains."""

    domains: tuple[str, ...]
    files: tuple[Remote, ...]
    note: str = ""
    """What else there is to say where it cannot be fetched."""


def _mnist(name: str, md5: str) -> Remote:
    homes = ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/")
    return Remote(tuple(home + name for home in homes), f"md5:{md5}")


def _usps(name: str, md5: str) -> Remote:
    return Remote((f"https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/multiclass/{name}",), f"md5:{md5}")


def _svhn(name: str, md5: str) -> Remote:
    return Remote(tuple(f"{s}://ufldl.stanford.edu/housenumbers/{name}" for s in ("https", "http")), f"md5:{md5}")


def _cifar(name: str, md5: str) -> Remote:
    return Remote((f"https://www.cs.toronto.edu/~kriz/{name}",), f"md5:{md5}")


def _fedbn(name: str, checksum: str | None = None, size: int | None = None) -> Remote:
    return Remote((f"https://huggingface.co/datasets/Jemary/FedBN_Dataset/resolve/main/{name}",), checksum, size)


def _domainnet(domain: str, size: int, sha256: str, folder: str = "") -> Source:
    url = f"http://csr.bu.edu/ftp/visda/2019/multi-source/{folder}{domain}.zip"
    images = Remote((url,), f"sha256:{sha256}", size)
    return Source((domain,), (_fedbn("domainnet_dataset.zip"), images))


MNIST = (
    _mnist("train-images-idx3-ubyte.gz", "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
    _mnist("train-labels-idx1-ubyte.gz", "d53e105ee54ea40749a09fcbcd1e9432"),
    _mnist("t10k-images-idx3-ubyte.gz", "9fb629c4189551a2d022fa330f9573f3"),
    _mnist("t10k-labels-idx1-ubyte.gz", "ec29112dd5afa0611ce80d1b7f02629c"),
)
USPS = (
    _usps("usps.bz2", "ec16c51db3855ca6c91edd34d0e9b197"),
    _usps("usps.t.bz2", "8ea070ee2aca1ac39742fdd1ef5ed118"),
)
SVHN = (
    _svhn("train_32x32.mat", "e26dedcc434d2e4c54c9b2d4a06d8373"),
    _svhn("test_32x32.mat", "eb5a983be6a315427106f1b164d9cef3"),
)
FEDBN_DIGITS = _fedbn(
    "digit_dataset.zip", "sha256:6c006e41ce16404aab520895a5c510166453c8b58ed2e7eb7e23e133e1fa4221", 278_200_677
)

SOURCES: dict[str, tuple[Source, ...]] = {
    "digits": (
        Source(
            tuple(dataset("digits").domains),
            (FEDBN_DIGITS,),
            "three domains have homes of their own: fedco2 data get digits --domain mnist (or svhn, usps)",
        ),
        Source(("mnist",), MNIST),
        Source(("svhn",), SVHN),
        Source(("usps",), USPS),
    ),
    "office": (
        Source(
            tuple(dataset("office").domains),
            (_fedbn("office_caltech_10_dataset.zip"),),
            "the original images have no lasting home; FedBN's archive is the one that we know of",
        ),
    ),
    "domainnet": (
        _domainnet(
            *("clipart", 1_270_909_081, "f8f248a3e8bbc9868c523ae24e6601b4c2ad102afc60c0efeb4f3255df22354d"),
            folder="groundtruth/",
        ),
        _domainnet("infograph", 4_338_659_804, "891e14f476317e97b6f06d6498c11d0a5b8d0c8b57210765ed9beb072da611fa"),
        _domainnet(
            *("painting", 3_679_366_174, "fa47e6d405503ea0286cabd767f176bd30e988b63ddd7b9db16cf030c9770015"),
            folder="groundtruth/",
        ),
        _domainnet("quickdraw", 459_920_701, "9f37df2a8c3733703dbb35ad9964202a65f675ca30137756457537536b485d84"),
        _domainnet("real", 6_062_039_589, "d7fe010b430c5b510f85d657d38c4a1924822695fabea4fef57bd00dba251d63"),
        _domainnet("sketch", 2_633_992_926, "23a7dbae7016b343e934399beaa8a68728fb5e570ebe2c71df9b75cf91c499fc"),
    ),
    "cifar10": (Source(("cifar10",), (_cifar("cifar-10-python.tar.gz", "c58f30108f718f92721af3b95e74349a"),)),),
    "cifar100": (Source(("cifar100",), (_cifar("cifar-100-python.tar.gz", "eb9058c3a382ffc7106e4002c42a8d85"),)),),
}

TERMS = {
    "digits": "its owners' terms: MNIST CC BY-SA 3.0, SVHN non-commercial, the others state none",
    "office": "no licence stated; product and web photographs, for research",
    "domainnet": "holds copyrighted images; non-commercial research only",
    "cifar10": "no licence stated; cite Krizhevsky 2009",
    "cifar100": "no licence stated; cite Krizhevsky 2009",
}


def sources(name: str, wanted: set[str], alone: bool) -> list[Source]:
    """Those that give the wanted domains; a domain asked for ``alone`` comes from its own home, if it has one."""
    chosen: list[Source] = []
    for source in sorted(SOURCES[dataset(name).name], key=lambda source: len(source.domains) if alone else 0):
        if wanted.intersection(source.domains):
            chosen.append(source)
            wanted = wanted.difference(source.domains)
    return chosen
