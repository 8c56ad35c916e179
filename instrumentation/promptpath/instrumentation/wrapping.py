"""Patching a library and taking the patches off again, over wrapt.

What is not there (another release of the library) is skipped, said once at INFO, and listed for `promptpath doctor`;
it is never an error. Patches are grouped by the module that asked for them, so that a shim takes off its own only.
"""

from __future__ import annotations

import functools
import logging
import sys
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any, Final

import wrapt

from promptpath.instrumentation.safety import note_failure

#: wrapt's convention: (wrapped, instance, args, kwargs) -> result.
Wrapper = Callable[[Callable[..., Any], Any, tuple[Any, ...], dict[str, Any]], Any]
#: Makes of a method the function that is to be there in its place.
Maker = Callable[[Callable[..., Any]], Callable[..., Any]]

_log: Final = logging.getLogger("promptpath")
_lock: Final = threading.Lock()


class _Patch:
    """One patched attribute, or one that waits for its module to be imported."""

    __slots__ = ("_active", "attribute", "had_own", "make", "name", "original", "owner", "parent", "proxy")

    def __init__(self, owner: object, name: str, make: Callable[[_Patch, Callable[..., Any]], Any]) -> None:
        self.owner = owner
        self.name = name
        self.make = make
        self.parent: Any = None
        self.attribute = ""
        self.original: Any = None
        self.had_own = False
        self.proxy: Any = None
        self._active = True

    def is_active(self) -> bool:
        return self._active

    def apply(self, owner: object) -> bool:
        """Put the wrapper on; False if the attribute is not there."""
        if not self._active or self.proxy is not None:
            return self._active
        try:
            self.parent, self.attribute, self.original = wrapt.resolve_path(owner, self.name)
        except Exception:
            _skip(f"{_name_of(owner)}:{self.name}")
            return False
        self.had_own = self.attribute in getattr(self.parent, "__dict__", {})
        proxy = self.make(self, self.original)
        try:
            setattr(self.parent, self.attribute, proxy)
        except Exception as error:  # a type that cannot be patched, such as one of an extension module
            note_failure(f"wrap {_name_of(owner)}:{self.name}", error)
            _skip(f"{_name_of(owner)}:{self.name}")
            return False
        self.proxy = proxy
        return True

    def undo(self) -> None:
        """Restore the original. Where somebody has wrapped over ours since, ours only passes through from now on."""
        self._active = False
        if self.proxy is None:
            return
        own = getattr(self.parent, "__dict__", {})
        if own.get(self.attribute) is not self.proxy:
            return
        if self.had_own:
            setattr(self.parent, self.attribute, self.original)
        else:
            delattr(self.parent, self.attribute)


_patches: Final[dict[str, list[_Patch]]] = {}
_skipped: Final[dict[str, None]] = {}


def _name_of(owner: object) -> str:
    if isinstance(owner, str):
        return owner
    if isinstance(owner, ModuleType):
        return owner.__name__
    return f"{getattr(owner, '__module__', '?')}.{getattr(owner, '__qualname__', type(owner).__name__)}"


def _skip(place: str) -> None:
    if place in _skipped:
        return
    _skipped[place] = None
    _log.info("promptpath: %s is not there in this release and is not instrumented", place)


def _caller() -> str:
    return str(sys._getframe(2).f_globals.get("__name__", ""))


def wrap(owner: object, name: str, wrapper: Wrapper, *, group: str | None = None) -> bool:
    """Wrap an attribute of a module or class.

    Args:
        owner: a module, class or object; or a module's dotted name. A module named so that has not been imported yet is
            not imported: it is patched when the program imports it.
        name: the attribute, dotted for one inside a class (`"Completions.create"`).
        wrapper: called as `wrapper(wrapped, instance, args, kwargs)` in place of the attribute.
        group: whose patch it is; the calling module's name by default.

    Returns:
        True if it is in place or waits for its module, False if there is no such attribute.
    """

    def make(patch: _Patch, original: Callable[..., Any]) -> Any:
        return wrapt.FunctionWrapper(original, wrapper, enabled=patch.is_active)

    return _put(_Patch(owner, name, make), group or _caller())


def replace(owner: object, name: str, maker: Maker, *, group: str | None = None) -> bool:
    """As `wrap`, by a plain function: for methods called so often that the way through a wrapper costs too much.

    The function is not told when it is taken off: where somebody has wrapped over it since, it goes on being called,
    and then must only pass through.

    Args:
        owner, name, group: as for `wrap`.
        maker: given the method, returns the function that is put in its place, and is called as the method was.
    """

    def make(_: _Patch, original: Callable[..., Any]) -> Any:
        return functools.update_wrapper(maker(original), original)

    return _put(_Patch(owner, name, make), group or _caller())


def _put(patch: _Patch, group: str) -> bool:
    owner, name = patch.owner, patch.name
    with _lock:
        patches = _patches.setdefault(group, [])
        if any(other.owner == owner and other.name == name and other.is_active() for other in patches):
            return True
        patches.append(patch)
    # Outside the lock: looking an attribute up may import.
    if not isinstance(owner, str):
        done = patch.apply(owner)
    elif owner in sys.modules:
        done = patch.apply(sys.modules[owner])
    else:
        wrapt.register_post_import_hook(patch.apply, owner)
        done = True
    if not done:
        with _lock:
            patches.remove(patch)
    return done


def unwrap_all(group: str | None = None) -> None:
    """Take off all patches of a group (by default those of the calling module), last first."""
    with _lock:
        patches = _patches.pop(group or _caller(), [])
    for patch in reversed(patches):
        patch.undo()


def skipped() -> list[str]:
    """Places that were to be patched and are not there, as `module:attribute`."""
    return list(_skipped)
