# Two virtual machines with software RoCE or software iWARP, joined by a wire; sourced by what runs there ($machine is one or two). The first
# one decides: `order COMMAND...` has the second one run something, in the shell that is in `obey`.

one=10.77.0.1
two=10.77.0.2
orders=0

# The wire, the addresses, and software RoCE.
join() {
    modprobe -a virtio_net crc32_generic crc32c_generic rdma_rxe siw rdma_ucm sch_netem || return 1
    for _ in {1..100}; do
        [ -e /sys/class/net/eth0 ] && break
        sleep 0.05
    done
    ip link set eth0 mtu 9000 && ip addr add "${!machine}/24" dev eth0 && ip link set eth0 up &&
        rdma link add rxe0 type rxe netdev eth0 || return 1
    # siw's sockets never run out of room: where one does, siw may count an FPDU's payload twice in its CRC (docs/siw.md).
    echo 4096 4194304 4194304 >/proc/sys/net/ipv4/tcp_wmem || return 1
    # libibverbs loads what serves any adapter.
    find /etc/libibverbs.d -type f ! -name rxe.driver ! -name siw.driver -delete
}

# Software iWARP instead of software RoCE, here.
use_siw() { rdma link delete rxe0 && rdma link add siw0 type siw netdev eth0; }

# Has the other machine run this; what it prints, and its status. What it starts in the background stays. Not in a subshell,
# nor in a pipe: it counts.
order() {
    local status
    orders=$((orders + 1))
    echo "$*" >"/out/order.new" && mv /out/order.new "/out/order.$orders" || return 1
    for _ in {1..1200}; do
        if [ -e "/out/obeyed.$orders" ]; then
            cat "/out/answer.$orders"
            read -r status <"/out/obeyed.$orders"
            return "$status"
        fi
        sleep 0.05
    done
    echo "no answer: $*"
    return 1
}

# Does what the other machine wants until it wants `exit`.
obey() {
    local command
    while true; do
        orders=$((orders + 1))
        until [ -e "/out/order.$orders" ]; do sleep 0.05; done
        command=$(cat "/out/order.$orders")
        if [ "$command" = exit ]; then
            : >"/out/answer.$orders"
            echo 0 >"/out/obeyed.$orders"
            return 0
        fi
        eval "$command" >"/out/answer.$orders" 2>&1
        echo $? >"/out/obeyed.new" && mv /out/obeyed.new "/out/obeyed.$orders"
    done
}
