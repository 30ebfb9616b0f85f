"""A checker for methods: the laws that every method keeps, and what to do where one does not.

from fedtrain.testing import check_method

def test_my_method():
    check_method(MyMethod).raise_failures()
"""

from fedtrain.testing.check_method import CheckResult, MethodReport, check_method
from fedtrain.testing.laws import LAWS, LawBroken

__all__ = ["LAWS", "CheckResult", "LawBroken", "MethodReport", "check_method"]
