"""The packages, found in the folders that are `dagengine`, `dagengine.metrics` and `.judges`.

All else is in `pyproject.toml`, which can name packages in mapped folders only one by one.
"""

from setuptools import find_packages, setup

HOMES = {"dagengine": "dagengine", "dagengine.metrics": "metrics", "dagengine.judges": "judges"}
rooms = {f"{name}.{room}" for name, home in HOMES.items() for room in find_packages(home)}

setup(packages=sorted({*HOMES, *rooms}))
