"""Parts of OpenAPI schemas."""

from __future__ import annotations

from gangsched.visibility.ports import Json


def text(description: str, **more: object) -> Json:
    """Schema of a string."""
    return {"type": "string", "description": description, **more}


def number(description: str) -> Json:
    """Schema of an integer."""
    return {"type": "integer", "format": "int64", "description": description}


def flag(description: str) -> Json:
    """Schema of a boolean."""
    return {"type": "boolean", "description": description}


def listed(description: str, items: Json) -> Json:
    """Schema of a list."""
    return {"type": "array", "description": description, "items": items}


def texts(description: str) -> Json:
    """Schema of a list of strings."""
    return listed(description, {"type": "string"})


def record(description: str, **fields: Json) -> Json:
    """Schema of an object."""
    return {"type": "object", "description": description, "properties": fields}
