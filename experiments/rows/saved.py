"""Files of a saved model, found without torch: in a folder, or by a name on the hub whose files are kept here."""

from pathlib import Path


def file_of(place: str, name: str = "tokenizer.json") -> Path | None:
    """Return a file of a saved model; None if it is not here."""
    if Path(place).is_dir():
        file = Path(place) / name
        return file if file.is_file() else None
    try:
        from huggingface_hub import try_to_load_from_cache  # optional

        found = try_to_load_from_cache(place, name)
    except (ImportError, ValueError):
        return None
    return Path(found) if isinstance(found, str) else None
