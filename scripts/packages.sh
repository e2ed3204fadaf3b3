# Debian packages for the scripts beside this file, which source it. Nothing that is installed is
# started: a policy forbids it meanwhile and is put back afterwards.

apt_quiet() {
    local said status
    said=$(mktemp)
    DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=600 -o APT::Update::Error-Mode=any "$@" >"$said" 2>&1
    status=$?
    [ $status -eq 0 ] || tail -5 "$said"
    rm -f "$said"
    return $status
}

# Those of these packages that are not installed.
missing_packages() {
    local package
    for package in "$@"; do
        dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q '^install ok installed' || echo "$package"
    done
}

# Installs those of these packages that the archive has.
install_packages() {
    local missing policy=/usr/sbin/policy-rc.d made=no status
    apt_quiet update || return 1
    mapfile -t missing < <(missing_packages "$@" | while read -r package; do
        apt-cache show "$package" >/dev/null 2>&1 && echo "$package"
    done)
    [ ${#missing[@]} -gt 0 ] || return 0
    if [ ! -e "$policy" ]; then
        printf '#!/bin/sh\nexit 101\n' >"$policy"
        chmod 755 "$policy"
        made=yes
    fi
    apt_quiet install -y --no-install-recommends "${missing[@]}"
    status=$?
    if [ $made = yes ]; then rm -f "$policy"; fi
    return $status
}

# Whether this user may install anything.
can_install() { [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; }

# The sources of these Debian packages, unpacked in the current folder. The lists of sources are kept in
# the folder $1; the machine's own stay as they are.
source_packages() {
    local own=$1 file options
    shift
    mkdir -p "$own/lists/partial"
    : >"$own/source.list"
    : >"$own/source.sources"
    for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
        [ -f "$file" ] && sed -n 's/^deb /deb-src /p' "$file" >>"$own/source.list"
    done
    for file in /etc/apt/sources.list.d/*.sources; do
        [ -f "$file" ] && { sed 's/^Types:.*/Types: deb-src/' "$file"; echo; } >>"$own/source.sources"
    done
    mkdir -p "$own/parts"
    cp "$own/source.sources" "$own/source.list" "$own/parts"
    options=(-o Dir::Etc::sourcelist=/dev/null -o "Dir::Etc::sourceparts=$own/parts"
        -o "Dir::State::lists=$own/lists" -o APT::Sandbox::User=root)
    apt_quiet "${options[@]}" update && apt_quiet "${options[@]}" source "$@"
}
