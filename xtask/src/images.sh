# Builds an image with Debian packages and tags it with several names. Arguments: the packages separated by commas, and the
# names of the image. The content of a variable COMMAND_name becomes a command in the image.
set -eu
packages=$1
shift
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
trap 'exit 1' INT TERM HUP

. /etc/os-release
echo "images: debootstrap of $VERSION_CODENAME with $packages"
debootstrap --variant=minbase --include="$packages" "$VERSION_CODENAME" "$folder/root" > "$folder/log" 2>&1 || {
    tail -n 20 "$folder/log" >&2
    exit 1
}
rm -rf "$folder"/root/var/lib/postgresql/* "$folder"/root/var/cache/apt/* "$folder"/root/var/lib/apt/lists/* "$folder"/root/usr/share/doc/*
for name in $(env | sed -n 's/^COMMAND_\([a-z]*\)=.*/\1/p'); do
    printenv "COMMAND_$name" > "$folder/root/usr/local/bin/$name"
    chmod 755 "$folder/root/usr/local/bin/$name"
done
for image in "$@"; do
    echo "images: importing $image"
    id=$(tar -C "$folder/root" -c . | docker import - "$image")
    echo "images: $image is $(echo "$id" | cut -c 8-19)"
done
