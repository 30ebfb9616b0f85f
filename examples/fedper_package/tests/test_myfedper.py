"""The method keeps every law."""

from fedco2_myfedper import MyFedPer

from fedtrain.testing import check_method


def test_it_keeps_the_laws_of_every_method() -> None:
    """As `fedco2 methods check myfedper` says."""
    check_method(MyFedPer).raise_failures()
