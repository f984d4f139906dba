"""The public names. Importing this imports, and so registers, every encoder of the package."""

from pathlib import Path

from pe_zoo._contract.check import Verdict
from pe_zoo._contract.model import check_model
from pe_zoo._encoder import Encoder, Geometry, Site, Unsupported, raw_scores, scores
from pe_zoo._knobs import Knob, knobs
from pe_zoo._numberings import Numbering, numberings
from pe_zoo._registry import PluginError, Registry, build, get, load_catalogue, load_file, load_files, names, register
from pe_zoo._tables import heads_first

__all__ = ["Encoder", "Geometry", "Site", "Unsupported", "build", "get", "names", "raw_scores", "register", "scores"]
__all__ += ["Knob", "Numbering", "PluginError", "Registry", "Verdict", "check_model", "heads_first", "knobs"]
__all__ += ["load_catalogue", "load_file", "load_files", "numberings"]

load_catalogue("pe_zoo", [str(Path(__file__).parent)])
