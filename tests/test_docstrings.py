"""Every module says which of its names are public, and each of these has a docstring with an example."""

import ast
import importlib
import inspect
import pathlib

import pytest

import mder_jax

FOLDER = pathlib.Path(mder_jax.__file__).parent
FILES = [*FOLDER.glob("[a-z]*.py"), *FOLDER.glob("[a-z]*/__init__.py")]
MODULES = sorted(path.stem if path.stem != "__init__" else path.parent.name for path in FILES)
TRIVIAL = {"n", "size", "batch_shape"}  # properties that the example of their class shows
PARTS = (property, classmethod, staticmethod)


def with_methods(name, value):
    """A function, or a class and its own public methods; nothing for a constant."""
    if callable(value):
        yield name, value
    for part, method in vars(value).items() if inspect.isclass(value) else ():
        own = inspect.isfunction(method) or isinstance(method, PARTS)
        if own and not part.startswith("_") and part not in TRIVIAL:
            yield f"{name}.{part}", method


def without_example(owner):
    named = [pair for name in owner.__all__ for pair in with_methods(name, getattr(owner, name))]
    return [name for name, value in named if "\nExample:\n  >>> " not in (inspect.getdoc(value) or "")]


@pytest.mark.parametrize("name", MODULES)
def test_public_names_have_an_example(name):
    assert without_example(importlib.import_module(f"mder_jax.{name}")) == []


def test_names_of_the_package_have_an_example():
    assert without_example(mder_jax) == []


def test_what_the_package_exports_is_public_in_its_module():
    for node in ast.parse((FOLDER / "__init__.pyi").read_text()).body:
        if isinstance(node, ast.ImportFrom) and node.module in MODULES:
            public = importlib.import_module(f"mder_jax.{node.module}").__all__
            assert {alias.name for alias in node.names} <= set(public), node.module
