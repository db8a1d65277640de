# Adds this machine's Rust toolchain, and the crates that cargo has downloaded, to an image with a C compiler. Arguments: the
# image, the name of the new one, the toolchain's directory, cargo's directory.
set -eu
base=$1 image=$2 toolchain=$3 cargo=$4
container=$(docker create "$base" true)
trap 'docker rm --force "$container" > /dev/null' EXIT
trap 'exit 1' INT TERM HUP
echo "images: adding the toolchain"
tar -C "$toolchain" --exclude=./share --exclude=./lib/rustlib/src -c . | docker cp - "$container:/usr/local"
folder=$(mktemp -d)
mkdir -p "$folder/cargo"
cp -R "$cargo/registry" "$folder/cargo/registry"
rm -rf "$folder/cargo/registry/src"
echo "images: adding the crates"
tar -C "$folder" --owner=0 --group=0 -c cargo | docker cp - "$container:/usr/local"
rm -rf "$folder"
docker commit -c "ENV CARGO_HOME=/usr/local/cargo CARGO_NET_OFFLINE=true" "$container" "$image" > /dev/null
echo "images: $image is made"
