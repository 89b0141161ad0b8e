"""Package metadata: everything is read from settings.ini."""
import re
from configparser import ConfigParser
from pathlib import Path

from setuptools import find_packages, setup

config = ConfigParser()
config.read(Path(__file__).parent / "settings.ini", encoding="utf-8")
cfg = config["DEFAULT"]
course, onnx, test = (cfg[f"{name}_requirements"].split() for name in ("course", "onnx", "test"))
readme = (Path(__file__).parent / "README.md").read_text(encoding="utf-8")
for start, kind in ((r"!\[[^]]*\]\(", "raw"), (r"\]\(", "blob")):  # its files are not on the package index
    readme = re.sub(rf"({start})(?![a-z]+:|#)", rf"\1{cfg['git_url']}/{kind}/{cfg['branch']}/", readme)

setup(
    name=cfg["lib_name"],
    version=cfg["version"],
    description=cfg["description"],
    long_description=readme,
    long_description_content_type="text/markdown",
    author=cfg["author"],
    author_email=cfg["author_email"],
    url=cfg["git_url"],
    project_urls={"Course": cfg["doc_host"] + cfg["doc_baseurl"], "Source": cfg["git_url"],
                  "Changelog": f"{cfg['git_url']}/blob/{cfg['branch']}/CHANGELOG.md",
                  "Issues": cfg["git_url"] + "/issues"},
    keywords=cfg["keywords"].split(),
    license_expression="Apache-2.0",
    license_files=["LICENSE"],
    entry_points={"console_scripts": cfg["console_scripts"].split()},
    packages=find_packages(include=[cfg["lib_path"], cfg["lib_path"] + ".*"]),
    package_data={cfg["lib_path"]: ["py.typed", "*.pyi"]},
    python_requires=">=" + cfg["min_python"],
    install_requires=cfg["requirements"].split(),
    extras_require={"course": course + onnx, "onnx": onnx, "test": test,
                    "dev": course + onnx + test + cfg["dev_requirements"].split()},
    classifiers=[
        "Development Status :: 3 - Alpha",
        "Intended Audience :: Education",
        "Intended Audience :: Science/Research",
        "Natural Language :: English",
        *(f"Programming Language :: Python :: 3.{minor}" for minor in (11, 12, 13, 14)),
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
    ],
)
