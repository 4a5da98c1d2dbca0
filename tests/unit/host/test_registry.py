"""Patches apply all or none, are verified, apply once, and can be undone."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import pytest

from vllm_hust_vspec.errors import HostMismatch
from vllm_hust_vspec.host.registry import Facts, Patch, Registry
from vllm_hust_vspec.host.requirements import Attributes, Field, Method, Symbol
from vllm_hust_vspec.settings import Settings


@dataclass
class Output:
    tokens: int = 0


class Base:
    def width(self, rows: int) -> int:
        return rows

    @classmethod
    def named(cls, name: str) -> str:
        return f"{cls.__name__} {name}"

    @staticmethod
    def plain(value: int) -> int:
        return value

    @property
    def size(self) -> int:
        return 1


class Derived(Base):
    pass


def free(value: int) -> int:
    return value


@pytest.fixture
def host() -> Iterator[ModuleType]:
    """A small host of two modules; the second imported `free` by name."""
    module, user = ModuleType("fakehost"), ModuleType("fakehost_user")
    for thing in (Output, Base, Derived, free):
        setattr(module, thing.__name__, thing)
    user.free = free  # type: ignore[attr-defined]
    kept = {cls: dict(vars(cls)) for cls in (Base, Derived)}
    sys.modules.update({"fakehost": module, "fakehost_user": user})
    # This test module holds `free` as well, as a user's module would.
    globals_free = globals().pop("free")
    yield module
    globals()["free"] = globals_free
    for name in ("fakehost", "fakehost_user"):
        del sys.modules[name]
    for cls, before in kept.items():
        for name in set(vars(cls)) - set(before):
            delattr(cls, name)
        for name in ("width", "named", "plain"):
            if name in before:
                setattr(cls, name, before[name])


def double(original: Callable[..., int], *args: Any) -> int:
    return 2 * original(*args)


def patch(target: str, **options: Any) -> Patch:
    return Patch(**{"name": target, "target": target, "reason": "r", "replace": double, "until": "u"} | options)


def test_applied_patch_runs_in_place_of_the_original(host: ModuleType) -> None:
    registry = Registry([patch("fakehost:Base.width")])
    registry.apply(registry.patches)
    assert host.Base().width(3) == 6


def test_rollback_restores_the_very_same_objects(host: ModuleType) -> None:
    before = {name: vars(Base)[name] for name in ("width", "named", "plain")}
    registry = Registry([patch(f"fakehost:Base.{name}") for name in ("width", "plain")])
    registry.apply(registry.patches)
    registry.rollback()
    assert {name: vars(Base)[name] for name in before} == before
    assert not registry.applied


def test_an_inherited_method_is_patched_on_the_named_class_alone(host: ModuleType) -> None:
    registry = Registry([patch("fakehost:Derived.width")])
    registry.apply(registry.patches)
    assert (Derived().width(3), Base().width(3)) == (6, 3)
    registry.rollback()
    assert "width" not in vars(Derived)


def test_static_and_class_methods_stay_what_they_are(host: ModuleType) -> None:
    registry = Registry(
        [
            patch("fakehost:Base.plain"),
            patch("fakehost:Base.named", replace=lambda original, cls, name: original(cls, name.upper())),
        ]
    )
    registry.apply(registry.patches)
    assert (Base.plain(3), Base().plain(3), Derived.named("x")) == (6, 6, "Derived X")
    registry.rollback()


def test_applying_twice_applies_once(host: ModuleType) -> None:
    registry = Registry([patch("fakehost:Base.width")])
    assert len(registry.apply(registry.patches)) == 1
    installed = vars(Base)["width"]
    assert registry.apply(registry.patches) == []
    assert vars(Base)["width"] is installed
    assert Base().width(1) == 2
    registry.rollback()


@pytest.mark.parametrize(
    ("need", "says"),
    [
        (Symbol("fakehost:Gone"), "fakehost:Gone does not exist"),
        (Symbol("fakehost_gone"), "module fakehost_gone cannot be imported"),
        (Method("fakehost:Base.gone"), "fakehost:Base.gone does not exist"),
        (Method("fakehost:Base.width", ("columns",)), "has no parameter columns (it takes self, rows)"),
        (Method("fakehost:Base.size"), "is a property, not a function"),
        (Field("fakehost:Output", "widths"), "fakehost:Output has no field widths"),
        (Field("fakehost:Base", "x"), "fakehost:Base is not a dataclass"),
        (Attributes("fakehost:Gone", ("a",)), "fakehost:Gone does not exist"),
    ],
)
def test_a_missing_requirement_stops_everything_and_is_named(host: ModuleType, need: Any, says: str) -> None:
    good, bad = patch("fakehost:Base.width"), patch("fakehost:Base.plain", requires=(need,))
    registry = Registry([good, bad])
    with pytest.raises(HostMismatch) as error:
        registry.apply(registry.patches)
    assert says in str(error.value)
    assert "\n" not in str(error.value)
    assert Base().width(3) == 3
    assert not registry.applied


@pytest.mark.parametrize(
    "target", ["fakehost:Base.gone", "fakehost:Gone.width", "fakehost_gone:f", "fakehost:Base.size"]
)
def test_a_target_that_is_not_a_function_is_refused(host: ModuleType, target: str) -> None:
    registry = Registry([patch(target)])
    with pytest.raises(HostMismatch):
        registry.apply(registry.patches)


def test_a_function_that_another_module_still_holds_is_found_and_nothing_stays_applied(host: ModuleType) -> None:
    registry = Registry([patch("fakehost:Base.width"), patch("fakehost:free")])
    with pytest.raises(HostMismatch, match=r"fakehost_user\.free still holds"):
        registry.apply(registry.patches)
    assert (host.free(3), Base().width(3)) == (3, 3)


def test_declared_holders_are_repointed_and_restored(host: ModuleType) -> None:
    registry = Registry([patch("fakehost:free", holders=("fakehost_user", "fakehost_absent"))])
    registry.apply(registry.patches)
    user = sys.modules["fakehost_user"]
    assert (host.free(3), user.free(3)) == (6, 6)
    registry.rollback()
    assert (host.free(3), user.free(3)) == (3, 3)


def test_a_patch_that_was_overwritten_fails_verification(host: ModuleType) -> None:
    registry = Registry([patch("fakehost:Base.width")])
    original = vars(Base)["width"]
    registry.apply(registry.patches)
    Base.width = lambda self, rows: 0  # type: ignore[method-assign]
    with pytest.raises(HostMismatch, match="replaced by something else"):
        registry.verify(registry.patches)
    registry.rollback()
    assert vars(Base)["width"] is original


def test_two_patches_of_one_target_or_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="share the target"):
        Registry([patch("a:b", name="x"), patch("a:b", name="y")])
    with pytest.raises(ValueError, match="share the name"):
        Registry([patch("a:b", name="x"), patch("a:c", name="x")])


def test_conditions_and_stages_select(host: ModuleType) -> None:
    registry = Registry(
        [
            patch("a:early", stage="register"),
            patch("a:worker", when=lambda facts: facts.role == "worker"),
            patch("a:any"),
        ]
    )
    facts = Facts(Settings(), role="engine")
    assert [p.target for p in registry.select("register", facts)] == ["a:early"]
    assert [p.target for p in registry.select("configured", facts)] == ["a:any"]


def test_attributes_are_checked_on_an_instance() -> None:
    need = Attributes("fakehost:Base", ("size", "height"))
    assert need.missing_on(Base()) == "fakehost:Base objects have no attribute height"
    assert Attributes("fakehost:Base", ("size",)).missing_on(Base()) is None


def test_the_table_says_why_and_until_when() -> None:
    from vllm_hust_vspec.host.patches import PATCHES

    assert all(len(p.reason) > 40 and len(p.until) > 10 for p in PATCHES)
    assert len({p.name for p in PATCHES}) == len(PATCHES)
