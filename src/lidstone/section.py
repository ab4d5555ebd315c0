"""What every section of a recipe is: a frozen group of checked values, defined where its values are used."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer

Positive = Annotated[int, Field(ge=1)]
Rate = Annotated[float, Field(ge=0, lt=1)]


class Section(BaseModel):
    """A part of a recipe: no unknown keys, no changes after loading, no NaN."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, hide_input_in_errors=True)

    LATER: ClassVar[frozenset[str]] = frozenset()
    """Keys that the first version did not have: written only where they are set, so old recipes keep their run ids."""

    @model_serializer(mode="wrap")
    def _without_later_defaults(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields = type(self).model_fields
        values: dict[str, Any] = serialize(self)
        return {
            key: value
            for key, value in values.items()
            if key not in self.LATER or getattr(self, key) != fields[key].default
        }
