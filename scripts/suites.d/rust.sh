# The network tests of mio, tokio and socket2.
quick=yes
packages=(gcc libc6-dev iproute2 python3)

crates=(mio=1.0.4 tokio=1.45.1 socket2=0.5.10)

# A crate's source, of which a registry's copy holds the tests too.
fetch() {
    local name=${1%=*} version=${1#*=}
    [ -d "$name" ] && return
    mkdir -p fetch/src
    : >fetch/src/lib.rs
    printf '[package]\nname = "fetch"\nversion = "0.0.0"\nedition = "2021"\n[workspace]\n[dependencies]\n%s = "=%s"\n' \
        "$name" "$version" >fetch/Cargo.toml
    rm -f fetch/Cargo.lock
    local manifest
    manifest=$(cargo metadata --manifest-path fetch/Cargo.toml --format-version 1 |
        python3 -c 'import json, sys
for p in json.load(sys.stdin)["packages"]:
    if p["name"] == sys.argv[1]: print(p["manifest_path"])' "$name")
    cp -r "$(dirname "$manifest")" "$name"
    printf '\n[workspace]\n' >>"$name/Cargo.toml"
}

# Builds a crate's tests and lists them: name and path of each program.
build() {
    local name=$1
    shift
    (cd "$name" && cargo test --no-run --message-format=json "$@") | python3 -c 'import json, sys
for line in sys.stdin:
    d = json.loads(line)
    if d.get("executable") and d["profile"]["test"]:
        print(sys.argv[1] + "/" + d["target"]["name"], d["executable"], sys.argv[1])' "$name"
}

prepare() {
    local crate test tests=()
    [ -s programs ] && return
    for crate in "${crates[@]}"; do fetch "$crate"; done
    for test in tcp_accept tcp_connect tcp_echo tcp_into_split tcp_into_std tcp_peek tcp_shutdown tcp_socket \
        tcp_split tcp_stream net_lookup_host io_async_fd io_driver io_driver_drop; do
        tests+=(--test "$test")
    done
    export CARGO_TARGET_DIR=$work/build
    build mio --features os-poll,os-ext,net,log >programs.new
    build tokio --features full "${tests[@]}" >>programs.new
    build socket2 --features all >>programs.new
    mv programs.new programs
}

run() {
    local name program crate test status wanted
    while read -r name program crate; do
        wanted=()
        for test in "$@"; do
            [ "${test%%::*}" = "$name" ] && wanted+=("${test#*::}")
        done
        [ $# -eq 0 ] || [ ${#wanted[@]} -gt 0 ] || continue
        [ ${#wanted[@]} -eq 0 ] || wanted+=(--exact)
        (cd "$crate" && under 90 "$program" --test-threads=2 "${wanted[@]}" 2>&1) | tee "$(basename "$name").log" |
            awk -v n="$name" '/^test .* \.\.\. ok$/ { print "pass " n "::" $2 }
                /^test .* \.\.\. FAILED$/ { print "fail " n "::" $2 }' >&3
    done <programs
}
