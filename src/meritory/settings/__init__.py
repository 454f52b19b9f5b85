"""Settings: one typed model, where each value came from, and the data folder they live in.

A flag beats the environment, which beats `$MERITORY_HOME/config.toml`, which beats the default.
"""

from meritory.settings.home import PreparedHome, home_folder, prepare_home
from meritory.settings.load import load_settings
from meritory.settings.model import SETTINGS, Settings
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
