# A virtual machine with RDMA devices from Debian packages alone, for scripts/test-rdma, which sources it after
# scripts/packages.sh. Nothing of it is installed and no disk image is made: the kernel and its modules are
# unpacked below the folder $lab, and the machine has this machine's / as a read-only lower layer.
#
# The kernel is Debian's newest of the series below. siw (software iWARP), which Debian does not build, is
# built here from Debian's source of the same version, with its constants made module parameters again: what it
# does about CRC, revision and "ready to receive" is what the tests vary.

series=${SHUNT_RDMA_SERIES:-6.12}

machine_packages() {
    echo qemu-system-x86 kmod xz-utils cpio gcc gcc-12 libc6-dev make libelf1 bc iproute2 \
        libibverbs-dev librdmacm-dev ibverbs-providers tshark
}

# The version of the kernel, as its packages have it in their names.
kernel_version() {
    apt-cache depends "linux-image-$series-amd64" 2>/dev/null |
        sed -n 's/.*Depends: linux-image-\([0-9][^ ]*\)$/\1/p' | head -1
}

# Downloads a package to the folder of packages, unless it is there.
download() {
    local name=$1 version
    version=$(apt-cache show --no-all-versions "$name" | sed -n 's/^Version: //p' | sed 's/:/%3a/')
    ls "$lab/packages/${name}_${version}_"*.deb >/dev/null 2>&1 && return 0
    rm -f "$lab/packages/${name}_"*.deb
    (cd "$lab/packages" && apt_quiet -o APT::Sandbox::User=root download "$name")
}

unpack() { dpkg-deb -x "$lab/packages/${1}_"*.deb "$2"; }

# Builds siw.ko into the tree of modules.
build_siw() {
    local version=$1 base=${1%-amd64} build headers siw package knob
    build=$lab/build
    rm -rf "$build"
    mkdir -p "$build" "$lab/kernel/lib/modules/$version/updates"
    for package in "linux-headers-$version" "linux-headers-$base-common" "linux-kbuild-$base"; do
        download "$package" && unpack "$package" "$build" || return 1
    done
    download "linux-source-$series" || return 1
    dpkg-deb --fsys-tarfile "$lab/packages/linux-source-${series}_"*.deb |
        tar -xO "./usr/src/linux-source-$series.tar.xz" |
        xz -dc -T0 | tar -x -C "$build" "linux-source-$series/drivers/infiniband/sw/siw" || return 1
    headers=$build/usr/src/linux-headers-$version
    siw=$build/linux-source-$series/drivers/infiniband/sw/siw
    # The headers name each other by absolute paths.
    sed -i "s#include /usr/src/#include $build/usr/src/#" "$headers/Makefile"
    sed -i 's/\$(CONFIG_RDMA_SIW)/m/' "$siw/Makefile"
    for knob in loopback_enabled mpa_crc_required mpa_crc_strict peer_to_peer; do
        sed -i -E "s/^const bool ($knob)( = [a-z]+)?;/bool \1\2; module_param(\1, bool, 0644);/" "$siw/siw_main.c"
        sed -i "s/extern const bool $knob;/extern bool $knob;/" "$siw/siw.h"
        grep -q "module_param($knob," "$siw/siw_main.c" || { echo "siw has no $knob"; return 1; }
    done
    sed -i 's/^u_char mpa_version = MPA_REVISION_2;/& module_param(mpa_version, byte, 0644);/' "$siw/siw_main.c"
    grep -q "module_param(mpa_version," "$siw/siw_main.c" || { echo "siw has no mpa_version"; return 1; }
    # Without the types for BPF, which need a tool that is not there.
    make -s -C "$headers" M="$siw" CONFIG_DEBUG_INFO_BTF_MODULES= modules -j"$(nproc)" &&
        strip -g -o "$lab/kernel/lib/modules/$version/updates/siw.ko" "$siw/siw.ko" || return 1
    rm -rf "$build"
}

# The first file system: busybox, the modules that reach the real one, and a script that goes there.
make_initrd() {
    local version=$1 tree=$lab/initrd module file name number=10
    rm -rf "$tree"
    mkdir -p "$tree"/{bin,lib,dev,proc,sys,low,up,root}
    # Not installed: it would take the place of a busybox that is.
    download busybox-static && unpack busybox-static "$lab/busybox" &&
        cp "$lab/busybox/bin/busybox" "$tree/bin/busybox" || return 1
    for module in 9p 9pnet_virtio overlay; do
        modprobe -d "$lab/kernel" -S "$version" --show-depends "$module" || return 1
    done | awk '$1 == "insmod" && !seen[$2]++ { print $2 }' >"$lab/modules.txt"
    while read -r file; do
        number=$((number + 1))
        name=$(basename "$file" .xz)
        case $file in
        *.xz) xz -dc "$file" >"$tree/lib/$number-$name" ;;
        *) cp "$file" "$tree/lib/$number-$name" ;;
        esac || return 1
    done <"$lab/modules.txt"
    cp "$scripts/rdma/init" "$tree/init" && chmod 755 "$tree/init" || return 1
    (cd "$tree" && find . | cpio -o -H newc --quiet | gzip -1) >"$lab/initrd.gz"
}

# Everything that a machine needs, made unless it is there: $lab/vmlinuz, initrd.gz and kernel/.
prepare_machine() {
    local version made
    made="$series $(cat "$scripts/rdma/machine.sh" "$scripts/rdma/init" | sha256sum)"
    [ "$(cat "$lab/made" 2>/dev/null)" = "$made" ] && return 0
    apt_quiet update || return 1
    version=$(kernel_version)
    [ -n "$version" ] || { echo "no kernel of series $series in the archive"; return 1; }
    rm -rf "$lab/kernel" "$lab/made"
    mkdir -p "$lab/packages" "$lab/kernel"
    download "linux-image-$version" && unpack "linux-image-$version" "$lab/kernel" &&
        build_siw "$version" && depmod -b "$lab/kernel" "$version" && make_initrd "$version" || return 1
    cp "$lab/kernel/boot/vmlinuz-$version" "$lab/vmlinuz" && echo "$made" >"$lab/made"
}

# start_machine NAME SECONDS FOLDER PROCESSORS MEMORY [OPTION OF QEMU]...: boots one, in the background, with FOLDER as /out.
# There it runs FOLDER/script and leaves its status in FOLDER/status.NAME; what it prints comes to the standard output.
# Sets `machine` to what `await_machine` wants.
machines=()
start_machine() {
    local name=$1 seconds=$2 out=$3 processors=$4 memory=$5 reader hold
    shift 5
    rm -f "$out/status.$name" "$out/console.$name" "$out/said.$name"
    cp "$scripts/rdma/stage2" "$out/stage2" || return 125
    # What it prints comes through a FIFO, held open until it has ended: a character device on a closed standard input
    # counts as unplugged, and the guest would block.
    mkfifo "$out/said.$name" && exec {hold}<>"$out/said.$name" || return 125
    cat "$out/said.$name" {hold}>&- &
    reader=$!
    timeout -k 5 "$seconds" qemu-system-x86_64 -accel tcg,thread=multi,tb-size=512 -cpu max -m "$memory" \
        -smp "$processors" -display none -no-reboot -nodefaults -kernel "$lab/vmlinuz" -initrd "$lab/initrd.gz" \
        -append "console=ttyS0 quiet panic=-1 mitigations=off nokaslr tsc=reliable modules=$lab/kernel/lib/modules machine=$name" \
        -serial "file:$out/console.$name" -device virtio-serial-pci \
        -chardev "file,id=said,path=$out/said.$name" -device virtserialport,chardev=said,name=said \
        -virtfs local,path=/,mount_tag=root,security_model=none,readonly=on,multidevs=remap \
        -virtfs "local,path=$out,mount_tag=out,security_model=none" \
        -object rng-random,filename=/dev/urandom,id=random -device virtio-rng-pci,rng=random "$@" \
        </dev/null 2>"$out/qemu.$name" {hold}>&- &
    machine="$name $! $reader $hold"
    # For whoever has to end it early.
    machines+=($!)
}

# await_machine FOLDER MACHINE: its status; 124 if it took too long, 125 if it failed.
await_machine() {
    local out=$1 name process reader hold status
    read -r name process reader hold <<<"$2"
    wait "$process"
    status=$?
    exec {hold}>&-
    wait "$reader"
    rm -f "$out/said.$name"
    if [ -s "$out/status.$name" ]; then
        status=$(cat "$out/status.$name")
        # What the kernel has to say of it.
        [ "$status" -eq 0 ] || grep -a -E 'WARN|BUG|Oops|Call Trace|RIP|panic|stall|lockup|rxe' "$out/console.$name" | head -20
    elif [ $status -ne 124 ] && [ $status -ne 137 ]; then
        grep -a -E 'BUG|Oops|general protection|CPU:|RIP|EFLAGS|panic' "$out/console.$name" | head -12
        tail -n 10 "$out/console.$name" "$out/qemu.$name"
        status=125
    else
        status=124
    fi
    return "$status"
}

# run_machine SECONDS FOLDER SCRIPT: boots it, runs SCRIPT there as root with FOLDER as /out, prints what it prints, and
# returns its status; 124 if it took too long, 125 if the machine failed.
run_machine() {
    cp "$3" "$2/script" && again_if_it_fails run_one "$1" "$2"
}

run_one() {
    local status machine
    start_machine one "$1" "$2" 2 2048 || return 125
    await_machine "$2" "$machine"
    status=$?
    machines=()
    return $status
}

# run_two SECONDS FOLDER SCRIPT: two of them, joined by a wire (the first Ethernet of each), with the same FOLDER as /out. Both
# run SCRIPT, which finds out which it is by $machine (one or two). The first one's status; if that is not 0, also what
# the second has printed.
run_two() {
    cp "$3" "$2/script" && again_if_it_fails run_joined "$1" "$2"
}

run_joined() {
    local seconds=$1 out=$2 machine two status other
    # Of two that ran here before.
    rm -f "$out"/order.* "$out"/answer.* "$out"/obeyed.*
    start_joined two one 02 "$seconds" "$out" >"$out/log" || return 125
    two=$machine
    if start_joined one two 01 "$seconds" "$out"; then await_machine "$out" "$machine"; else false; fi
    status=$?
    await_machine "$out" "$two" >>"$out/log"
    other=$?
    machines=()
    [ $status -eq 0 ] || sed 's/^/  two: /' "$out/log"
    # (whose peer's machine fails fails too)
    [ $other -ne 125 ] || return 125
    [ $status -ne 0 ] || status=$other
    return $status
}

# COMMAND SECONDS FOLDER..., and again, three times at most, if the machine ended before its script: that is its kernel's failure,
# or the emulation's (QEMU 7.2 takes another register for the flags now and then when it interrupts), and says nothing of what was
# tested there. It is told, and what such a one counted does not count.
again_if_it_fails() {
    local status attempt first=$3/first
    for attempt in 1 2 3 4; do
        "$@" >"$first"
        status=$?
        if [ $status -ne 125 ] || [ $attempt -eq 4 ]; then
            cat "$first"
            return $status
        fi
        sed 's/^/  failed: /' "$first"
        echo "test-rdma: the virtual machine itself failed; again"
    done
}

# start_joined NAME PEER OCTET SECONDS FOLDER: one of two.
start_joined() {
    local wire=dgram,id=wire,local.type=unix,local.path=$5/wire.$1,remote.type=unix,remote.path=$5/wire.$2
    start_machine "$1" "$4" "$5" 1 1536 -netdev "$wire" -device "virtio-net-pci,netdev=wire,mac=52:54:00:77:00:$3"
}
