"""Settings: one typed model, where each value came from, and the data folder they live in."""

from meritory.settings.home import PreparedHome, home_folder, prepare_home
from meritory.settings.model import SETTINGS, Settings, load_settings
from meritory.settings.value import Setting, show

__all__ = [
    "SETTINGS",
    "PreparedHome",
    "Setting",
    "Settings",
    "home_folder",
    "load_settings",
    "prepare_home",
    "show",
]
