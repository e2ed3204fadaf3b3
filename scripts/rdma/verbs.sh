# In two virtual machines: the cases for RDMA adapters (adapter_peer) over Linux's software RoCE, the same that run over the
# stand-in elsewhere. On a clear wire, with the link cut, and with packets that are lost. Then over Linux's software iWARP.
# Prints a line for each case, and the totals; the status is 0 if all went well. /out/filter: part of the names of those to
# have, behind the name of the only adapter to have (siw:..., rxe:...) if it has one.

. /out/pair.sh
cp /out/adapter_peer /run
join || exit 1
if [ "$machine" = two ]; then
    obey
    exit
fi
read -r filter </out/filter
only=
[[ $filter != *:* ]] || only=${filter%%:*} filter=${filter#*:}

# cases NAME ARGUMENTS OF `ask`...
cases() {
    local name=$1 status serves=
    shift
    echo "$name:"
    # Nothing that the server of the cases before this has said must look as if this one served.
    order 'wait $server; rm -f /run/served' || return 1
    order "/run/adapter_peer serve $two:7000 >/run/served 2>&1 </dev/null & server=\$!" || return 1
    for _ in {1..100}; do
        order "grep -qs Ok /run/served" && serves=yes && break
        sleep 0.1
    done
    if [ -z "$serves" ]; then
        echo "$name: nobody serves; $(order 'cat /run/served')"
        return 1
    fi
    timeout 200 /run/adapter_peer ask $two:7000 "$@" | tee -a /run/all
    status=${PIPESTATUS[0]}
    # 124: its time was over; 134: it lost its peer.
    if [ "$status" -gt 1 ]; then
        echo "$name: without totals, status $status"
        ss -tnoH | head -4
        dmesg | tail -12
    fi
    order 'kill -0 $server 2>/dev/null && sleep 1; kill $server 2>/dev/null; cat /run/served' >/run/said
    sed '/^Ok/d; s/^/  two: /' /run/said
    return $status
}

# Until the other one is there.
order true || exit 1
well=0
if [ "$only" != siw ]; then
    cases "clear wire" "$filter" "ip link set eth0 down" "ip link set eth0 up" || well=1
    cut='tc qdisc add dev eth0 root netem loss 100%'
    cases "packets vanish" "${filter:-a link}" "$cut" "tc qdisc del dev eth0 root" || well=1
    tc qdisc add dev eth0 root netem loss 2% && order tc qdisc add dev eth0 root netem loss 2% &&
        cases "2% of the packets are lost" "${filter:-what is|a word|both|come and go}" || well=1
    tc qdisc del dev eth0 root && order tc qdisc del dev eth0 root
fi
if [ "$only" != rxe ]; then
    if use_siw && order use_siw; then
        cases "iWARP" "$filter" "ip link set eth0 down" "ip link set eth0 up" || well=1
    else
        echo "no siw"
        well=1
    fi
fi
order exit
grep -q '^test .* ok$' /run/all || well=1
exit $well
