"""Settings: one typed model, where each value came from, and the data folder they live in.

A flag beats the environment, which beats `$TENURE_HOME/config.toml`, which beats the default.
"""

from tenure.settings.home import PreparedHome, home_folder, prepare_home
from tenure.settings.load import load_settings
from tenure.settings.model import SETTINGS, Settings
from tenure.settings.value import Setting, show

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
