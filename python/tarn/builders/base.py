"""How every builder is made from settings."""

from __future__ import annotations

from argparse import Namespace
from typing import Any, Mapping

from typing_extensions import Self


class BaseBuilder:
    """Settings are attributes; an unknown one raises AttributeError."""

    @classmethod
    def from_kwargs(cls, **kwargs: Any) -> Self:
        """A builder with these settings. The key `strict` is not a setting: see
        from_dictionary."""
        strict = kwargs.pop("strict", True)
        return cls.from_dictionary(kwargs, strict=strict)

    @classmethod
    def from_namespace(cls, args: Namespace, strict: bool = False) -> Self:
        """A builder with the settings among the values of an argparse parser."""
        return cls.from_dictionary(vars(args), strict=strict)

    @classmethod
    def from_dictionary(cls, dictionary: Mapping[str, Any], strict: bool = True) -> Self:
        """A builder with these settings. An unknown key raises ValueError if strict
        and is left out otherwise; a wrong value always raises ValueError."""
        builder = cls()
        for key, value in dictionary.items():
            try:
                setattr(builder, key, value)
            except AttributeError:
                if strict:
                    raise ValueError(
                        f"{cls.__name__}: want settings of this builder, got {key!r}"
                    ) from None
        return builder
