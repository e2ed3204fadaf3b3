# In the virtual machine: our iWARP (iwarp_peer, over an ordinary TCP socket) against Linux's siw (siw_peer, by way of
# verbs). They sit at the two ends of a veth pair, ours in a network namespace of its own. Prints a line for each
# conversation, and the totals; the status is 0 if all went well. /out/filter: part of the names of those to have.
#
# Starting a program takes long under emulation: what can be done without is done without.

siw=10.9.0.1
ours=10.9.0.2
knobs=/sys/module/siw/parameters
passed=0
failed=0
port=7000
marks=0
read -r filter </out/filter

prepare() {
    # What lies in /out comes from outside anew each time.
    cp /out/iwarp_peer /out/siw_peer /run &&
        modprobe -a crc32c_generic siw rdma_ucm veth &&
        ip netns add ours &&
        ip link add wire0 type veth peer name wire1 netns ours &&
        ip addr add $siw/24 dev wire0 &&
        ip link set wire0 up &&
        ip -n ours addr add $ours/24 dev wire1 &&
        ip -n ours link set wire1 up &&
        rdma link add siw0 type siw netdev wire0 || return 1
    # siw's sockets never run out of room: where one does, siw may count an FPDU's payload twice in its CRC (docs/siw.md).
    echo 4096 4194304 4194304 >/proc/sys/net/ipv4/tcp_wmem || return 1
    # libibverbs loads what serves any adapter.
    find /etc/libibverbs.d -type f ! -name siw.driver -delete
    # A shell in the namespace, and what the kernel says from now on.
    coproc ours_shell { exec nsenter --net=/run/netns/ours bash; }
    echo on >/proc/sys/kernel/printk_devkmsg
    cat /dev/kmsg >>/run/kernel &
    mkfifo /run/never && exec {never}<>/run/never
}

# What siw does about CRC, the revision and "ready to receive".
set_siw() {
    local setting
    for setting in "$@"; do echo "${setting#*=}" >"$knobs/${setting%%=*}" || return 1; done
}

# Waits until a line of this file matches, some seconds at most.
appears() {
    local file=$1 pattern=$2 lines line
    for _ in {1..400}; do
        mapfile -t lines <"$file"
        for line in "${lines[@]}"; do [[ $line =~ $pattern ]] && return 0; done
        read -r -t 0.02 -u "$never"
    done
    return 1
}

# Waits until all that the kernel has said so far is in /run/kernel.
kernel_heard() {
    marks=$((marks + 1))
    echo "mark $marks." >/dev/kmsg
    appears /run/kernel "mark $marks\."
}

# Our end, in the background; `our_status` waits for it.
start_ours() {
    echo "/run/iwarp_peer $* >/run/ours 2>&1; echo \$?" >&"${ours_shell[1]}"
}

our_status() {
    local status
    read -r -t 60 -u "${ours_shell[0]}" status && return "$status"
}

show() {
    local line lines
    mapfile -t lines <"$2"
    for line in "${lines[@]}"; do echo "  $1: $line"; done
}

# Both ends of one conversation; the status says whether all was well.
converse() {
    local asks=$1 our_options=$2 siw_options=$3 status=0 first
    : >/run/ours
    : >/run/siw
    if [ "$asks" = ours ]; then
        # shellcheck disable=SC2086
        /run/siw_peer listen $siw $port ${siw_options#nobody} >/run/siw 2>&1 &
        first=$!
        appears /run/siw listening || status=1
        start_ours connect $siw:$port --siw "$our_options"
        our_status || status=1
        if [ $status -ne 0 ] || [ "$siw_options" = nobody ]; then
            kill $first
            wait $first
        else
            wait $first || status=1
        fi
    else
        start_ours listen $ours:$port --siw "$our_options"
        # shellcheck disable=SC2086
        appears /run/ours listening && /run/siw_peer connect $ours $port $siw_options >/run/siw 2>&1 || status=1
        our_status || status=1
    fi
    return $status
}

# What the kernel said is what it ought to have said: of the Terminate that our end has sent, and of nothing where nothing
# was wrong. siw takes the type for the layer and the layer for the type (tests/src/iwarp/offence.rs says why).
kernel_agrees() {
    local sent lines line
    kernel_heard || return 1
    mapfile -t lines </run/ours
    for line in "${lines[@]}"; do
        [[ $line =~ ^terminate:\ layer\ (.),\ type\ (.),\ code\ (.)$ ]] || continue
        sent="got TERMINATE. layer ${BASH_REMATCH[2]}, type ${BASH_REMATCH[1]}, code ${BASH_REMATCH[3]}"
        appears /run/kernel "$sent" || return 1
    done
    [[ $1 == *offend* || $1 == *suffer* ]] && return 0
    mapfile -t lines </run/kernel
    for line in "${lines[@]}"; do
        [[ $line =~ siw:|WARNING|BUG|Oops ]] && return 1
    done
    return 0
}

# conversation ours|siw NAME "OPTIONS OF OURS" "OPTIONS OF SIW": the first word says who asks. Option "nobody" of siw:
# its program never hears of it.
conversation() {
    local asks=$1 name="$2, $1 asks"
    [[ $name == *"$filter"* ]] || return 0
    port=$((port + 1))
    kernel_heard
    : >/run/kernel
    if converse "$asks" "$3" "$4" && kernel_agrees "$3"; then
        passed=$((passed + 1))
        echo "test $name ... ok"
    else
        failed=$((failed + 1))
        echo "test $name ... FAILED"
        show ours /run/ours
        show siw /run/siw
        show kernel /run/kernel
    fi
}

prepare || exit 1
set_siw mpa_version=2 peer_to_peer=N || exit 1

# The whole script, with all that can be agreed on.
for asks in ours siw; do
    set_siw mpa_crc_required=N
    conversation $asks "no CRC" --no-crc
    conversation $asks "a CRC that only ours wants" ""
    set_siw mpa_crc_required=Y
    conversation $asks "a CRC" ""
    conversation $asks "large segments" "--mulpdu 64768"
    conversation $asks "small segments" "--mulpdu 200"
    conversation $asks "one Read at a time" "--depth 1"
    conversation $asks "straight to their place" "--direct --mulpdu 64768"
done
conversation siw "a CRC that only siw wants" --no-crc

# Revision 1: who asks decides. This is captured, since tshark knows no other revision.
before=$((passed + failed))
set_siw mpa_version=1
: >/run/dumpcap
dumpcap -q -i wire0 -w /run/wire.pcapng >/run/dumpcap 2>&1 &
capture=$!
appears /run/dumpcap File: || exit 1
conversation siw "revision 1" ""
conversation ours "revision 1" --revision-1
set_siw mpa_crc_required=N
conversation siw "revision 1, no CRC" --no-crc
conversation ours "revision 1, no CRC" "--revision-1 --no-crc"
# What it has not fetched yet would be lost.
read -r -t 1 -u "$never"
kill -INT $capture
wait $capture
[ $((passed + failed)) -eq $before ] || cp /run/wire.pcapng /out
set_siw mpa_version=2 mpa_crc_required=Y

# "Ready to receive": the responder speaks first.
set_siw peer_to_peer=Y
conversation ours "ready by an empty Write" "--rtr write" late
conversation ours "ready by an empty Read" "--rtr read" late
conversation siw "ready by an empty Write" "--rtr write" late
set_siw peer_to_peer=N

# siw knows no markers, and says so.
conversation ours "markers are declined" "--markers --rejected" nobody
conversation siw "markers are declined" "--markers --refused" refused

# Violations.
for offence in write-stag write-bounds write-rights read-stag read-bounds read-ended send-long \
    send-unposted number offset queue opcode rdmap-version ddp-version unasked crc; do
    conversation ours "siw ends it: $offence" "--offend $offence" suffer
done
for offence in write-stag write-bounds write-rights read-stag read-bounds read-ended send-long send-unposted; do
    conversation ours "we end it: $offence" "--suffer $offence" "offend $offence"
    conversation siw "we end it: $offence" "--suffer $offence" "offend $offence"
done

word=ok
[ $failed -eq 0 ] && [ $passed -gt 0 ] || word=FAILED
echo "test result: $word. $passed passed; $failed failed"
[ $word = ok ]
