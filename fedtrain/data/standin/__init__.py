"""Built-in stand-in data: what a data set is replaced with on a machine that does not have it.

| data set | what is drawn instead | side | training / test images of a domain |
|---|---|---|---|
| Digits | printed digits in five styles | 28 | 2,300 / 400 |
| Office-Caltech10 | ten kinds of symbols in four styles | 96 | 766, 898, 125, 236 / 100 |
| DomainNet | ten other kinds of symbols in six styles | 96 | 600 / 100 |
| CIFAR-10 | ten kinds of symbols | 32 | 20,000 / 5,000 |
| CIFAR-100 | twenty kinds of symbols (superclasses) in five colours each | 32 | 20,000 / 5,000 |

Domains and classes keep the names and the order of the real data, but except for Digits an image does not show what
its class is called: class ``mug`` is some symbol, the same one in every domain. So no accuracy on a stand-in says
anything about the real data. What they share is the kind of difficulty: domains of one task that look different.

Shapes are characters of the fonts that come with matplotlib. All chance comes from generators that are seeded with data
set, domain, part and block, so the same images are drawn everywhere (as far as FreeType draws the same characters).
"""

from fedtrain.data.standin.pools import build_standin_pools, get_standin_size

__all__ = ["build_standin_pools", "get_standin_size"]
