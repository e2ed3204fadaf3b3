# In two virtual machines: real programs, the servers in one and the clients in the other, in three ways: over kernel TCP, over
# rsockets (librspreload.so, which a user could take instead), and with Shunt. The ways take turns. Prints a line for each
# program, which passes if with Shunt it does what it does over kernel TCP, by the transport that is wanted; a table of how
# fast each way was, which decides nothing; and the totals. rstream comes with rsockets and uses it by itself.
#
# Those that are done once go on over software iWARP instead of software RoCE: their names begin with siw-. Of these, one runs where
# the adapters' own connections get nowhere (siw-silent), and one where librdmacm is not installed (siw-without): they stay on
# our own iWARP. Many connections at once (many) all ride; so many that what may be locked is not enough for all (locked) and some that
# find no room at whatever step a ring is made in (bounded-N: so many objects of the adapter for the process) do what they can, and stay on
# our own iWARP where that is not enough, with the reason in the report.
#
# Those whose names begin with zcopy- lend their buffers (SHUNT_ZCOPY=sync): of what the client sends, a part has to go past the rings, and
# half where it waits for its reader and the reader for it (an emulated machine takes longer to come than others are waited for).
#
# /out/filter: a regular expression for the names of those to have. /out/once: whether each is done once and with Shunt only (yes, no);
# crowd: so, and only what is about many connections and what there is room for.

. /out/pair.sh
read -r filter </out/filter
read -r wanted </out/wanted
cp /out/libshunt.so /out/shunt /run
printf 'use %s connect * *:*\nuse %s listen * *:*\n' "$wanted" "$wanted" >/run/rules
read -r once </out/once
runs=2
ways=(tcp rsockets shunt)
[ "$once" = no ] || { runs=1 ways=(shunt); }
port=8000
passed=0
failed=0
declare -A best=() rsockets_fails=()

# The words before a program that make it go one of the ways. No shell: rsockets crashes it.
with() {
    case $1 in
    tcp) echo env ;;
    rsockets) [[ $2 == rstream* ]] && echo env || echo env LD_PRELOAD=/usr/lib/x86_64-linux-gnu/rsocket/librspreload.so ;;
    shunt) echo env LD_PRELOAD=/run/libshunt.so SHUNT_RULES=/run/rules SHUNT_REPORT=/run/report $(lends "$2") $(flow "$2") ;;
    esac
}

flow() { [[ $1 != credit-* ]] || echo SHUNT_FLOW=credit; }

lends() { [[ $1 != zcopy-* ]] || echo SHUNT_ZCOPY=sync SHUNT_ZCOPY_MIN=8k; }

# A server in the background, which `stop` ends.
start() {
    local way=$1 listens=$2 i
    shift 2
    rm -f /run/report
    # shellcheck disable=SC2046
    $(with "$way" "$1") "$@" >/run/server 2>&1 </dev/null &
    server=$!
    # What rsockets listens on the kernel does not tell.
    if [ "$way" = rsockets ]; then
        sleep 2
        return
    fi
    for i in {1..200}; do
        ss -ltnH "sport = :$listens" | grep -q . && return
        sleep 0.05
    done
    echo "the server does not listen"
    head -5 /run/server
    return 1
}

stop() {
    local i
    kill "$server" 2>/dev/null
    for i in {1..60}; do
        kill -0 "$server" 2>/dev/null || break
        sleep 0.05
    done
    kill -9 "$server" 2>/dev/null
    wait "$server" 2>/dev/null
    return 0
}

files() {
    mkdir -p /run/www /run/ngx
    head -c 65536 /dev/zero | tr '\0' 'x' >/run/www/file
    cat >/run/ngx/conf <<'END'
daemon off;
user root;
worker_processes 1;
error_log /run/ngx/errors;
pid /run/ngx/pid;
events { worker_connections 64; }
http {
    access_log off;
    client_body_temp_path /run/ngx/body;
    proxy_temp_path /run/ngx/proxy;
    fastcgi_temp_path /run/ngx/fastcgi;
    uwsgi_temp_path /run/ngx/uwsgi;
    scgi_temp_path /run/ngx/scgi;
    server { listen 8888 reuseport; root /run/www; }
}
END
    cat >/run/forks.py <<'END'
import socketserver, sys
class Echo(socketserver.BaseRequestHandler):
    def handle(self):
        while data := self.request.recv(65536):
            self.request.sendall(data)
class Server(socketserver.ForkingTCPServer):
    allow_reuse_address = True
Server((sys.argv[1], int(sys.argv[2])), Echo).serve_forever()
END
    cat >/run/digests.py <<'END'
import hashlib, socket, sys
lis = socket.create_server((sys.argv[1], int(sys.argv[2])))
to = memoryview(bytearray(1 << 20))
while True:
    c, n = lis.accept()[0], len(to)
    while n == len(to):
        n = 0
        while n < len(to) and (came := c.recv_into(to[n:])): n += came
        if n == len(to): c.sendall(hashlib.blake2b(to).digest())
    c.close()
END
    cat >/run/blocks.py <<'END'
import hashlib, os, socket, sys, time
s = socket.create_connection((sys.argv[1], int(sys.argv[2])))
fresh, message, rounds, began = os.urandom(2 << 20), bytearray(1 << 20), 0, time.monotonic()
while rounds < int(sys.argv[4]) or time.monotonic() - began < float(sys.argv[3]):
    at = rounds * 4099 % (1 << 20)
    message[:] = fresh[at:at + len(message)]
    digest = hashlib.blake2b(message).digest()
    s.sendall(message)
    message[:] = bytes(len(message))
    assert s.recv(64, socket.MSG_WAITALL) == digest, rounds
    rounds += 1
print("rounds", rounds)
END
    cat >/run/asks.py <<'END'
import socket, sys, time
host, port, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
began = time.monotonic()
rounds = 0

def echo(s, octet):
    data, back = bytes([octet]) * 20_000, b""
    s.sendall(data)
    while len(back) < len(data):
        piece = s.recv(65536)
        assert piece, "ended early"
        back += piece
    assert back == data

for i in range(1 if seconds else 5):
    s = socket.create_connection((host, port), 25)
    while True:
        echo(s, rounds % 251)
        rounds += 1
        if time.monotonic() - began >= seconds and (seconds or rounds % 5 == 0):
            break
    s.close()
print("seconds %.2f" % (time.monotonic() - began))
print("rounds", rounds)
END
    cat >/run/echoes.py <<'END'
import select, socket, sys
lis = socket.create_server((sys.argv[1], int(sys.argv[2])), backlog=1024)
poll, all = select.epoll(), {}
poll.register(lis, select.EPOLLIN)
while True:
    for fd, _ in poll.poll():
        if fd == lis.fileno():
            c = lis.accept()[0]
            all[c.fileno()] = c
            poll.register(c, select.EPOLLIN)
        elif data := all[fd].recv(65536):
            all[fd].sendall(data)
        else:
            poll.unregister(fd)
            all.pop(fd).close()
END
    cat >/run/many.py <<'END'
# Asks on so many connections for so many seconds, and until so many have gone by an adapter and all have had a ring or say that there
# is no room, however slow the machine is: some lose their ring again, where the peer's machine stands still for a second.
import json, os, signal, socket, subprocess, sys, threading, time
host, port, n, seconds, wanted = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]), int(sys.argv[5])
plain = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
watch = "while sleep 1; do /run/shunt stat --json | tr -d '\\n'; echo; done"
watch = subprocess.Popen(["sh", "-c", watch], stdout=subprocess.PIPE, env=plain)
rode, asked, rounds = set(), set(), 0
def follow():
    for line in watch.stdout:
        own = [c for p in json.loads(line) if p["pid"] == os.getpid() for c in p["connections"]]
        rode.update(c["local"] for c in own if c["transport"] == "verbs")
        asked.update(c["local"] for c in own if c["reserved"] or c["reason"] == "adapter_room")
threading.Thread(target=follow, daemon=True).start()
def late(*_):
    watch.kill()
    sys.exit("out of time after %d rounds, %d by the adapter, %d of %d asked it" % (rounds, len(rode), len(asked), n))
signal.signal(signal.SIGTERM, late)
all = [socket.create_connection((host, port), 60) for i in range(n)]
began = time.monotonic()
while rounds < 20 or time.monotonic() - began < seconds or len(rode) < wanted or len(asked) < n:
    for i, s in enumerate(all):
        s.sendall((b"%d in %d " % (i, rounds)).ljust(200, b"."))
    for i, s in enumerate(all):
        back = b""
        while len(back) < 200:
            piece = s.recv(200 - len(back))
            assert piece, "ended early"
            back += piece
        assert back == (b"%d in %d " % (i, rounds)).ljust(200, b"."), back
    rounds += 1
watch.kill()
print("".join(line for line in open("/proc/self/status") if line[:3] in ("VmP", "VmL", "VmR")))
print(len(rode), "by the adapter")
print("rounds", rounds)
END
    cat >/run/totals.py <<'END'
# How many go by the adapter in the end: at most so many, and all others by iWARP, because there was no room; or because their
# ring has failed, as some do where the emulation is slow. So many have had one (they have its size in the report).
import json, sys
most, had = map(int, sys.argv[2:])
totals, why, rings = {"verbs": 0, "iwarp": 0, "shm": 0, "tcp": 0}, {}, 0
for line in open(sys.argv[1]):
    report = json.loads(line)
    for name, count in report["totals"].items():
        totals[name] += count
    for c in report["connections"]:
        ring = c["transport"] in ("verbs", "iwarp") and c["reserved"] > 0
        rings += ring
        if c["transport"] == "iwarp" and (c["reason"] == "adapter_room" or not ring):
            why[c["reason"]] = why.get(c["reason"], 0) + 1
print(" ", totals, why, rings, "had a ring")
sys.exit(rings < had or totals["verbs"] > most or totals["tcp"] > 0 or totals["verbs"] + totals["iwarp"] == 0
    or any(reason != "adapter_room" for reason in why))
END
    cat >/run/family.py <<'END'
import os, socket, sys
def connection():
    return socket.create_connection((sys.argv[1], int(sys.argv[2])), 25)
def echo(s):
    for i in range(100 * int(sys.argv[3])):
        data, back = bytes([i % 251]) * 20_000, b""
        s.sendall(data)
        while len(back) < len(data):
            back += s.recv(65536)
        assert back == data
s = connection()
echo(s)
s.close()
child = os.fork()
s = connection()
echo(s)
s.close()
if child == 0:
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
print("rounds 300")
END
    cat >/run/by.py <<'END'
import json, sys
right, wrong, large, ridden = 0, [], False, False
try:
    lines = open(sys.argv[1]).readlines()
except OSError:
    lines = []
for line in lines:
    for c in json.loads(line)["connections"]:
        # (an adapter takes its time: a short connection ends by iWARP, before there is a ring for it)
        short = sys.argv[2] == "verbs" and c["transport"] == "iwarp" and not c["demotions"]
        size, count = (c[what + "_sent"] + c[what + "_received"] for what in ("bytes", "messages"))
        large |= size > 2_000_000 or count > 300
        ridden |= c["transport"] == sys.argv[2]
        if c["transport"] == sys.argv[2] or short:
            right += 1
        elif c["bytes_sent"] + c["bytes_received"]:
            wrong.append((c["transport"], c["reason"]))
if large and not ridden:
    wrong.append("none of those that had time for it")
early = wrong in ([], ["none of those that had time for it"])
if len(sys.argv) > 3:
    ends = [c for line in lines for c in json.loads(line)["connections"] if c["transport"] in ("verbs", "iwarp")]
    past, all = (sum(c[what] for c in ends) for what in ("zcopy_bytes", "bytes_sent"))
    print("  past the rings: %d of %d bytes" % (past, all))
    # (some go before there is a ring, and while there is none since the link is down)
    if past * int(sys.argv[3]) < all:
        wrong.append("few bytes past the rings")
if wrong or not right:
    print("  by", sys.argv[2] + ":", right, "connections; otherwise:", wrong[:3])
# (3: nothing is wrong but that it may have been over before there was a ring, or soon after)
sys.exit(3 if early and right and wrong else bool(wrong) or not right)
END
}

# Each program: its server, its client, and where its figure is. The client's status says whether it went well.
server_of() {
    case $1 in
    iperf3 | credit-iperf3 | zcopy-iperf3) echo $port iperf3 -s -1 -p $port ;;
    zcopy-blocks | zcopy-link-down) echo $port /usr/bin/python3 /run/digests.py $two $port ;;
    sockperf | credit-sockperf) echo $port sockperf sr --tcp -i $two -p $port ;;
    redis*) echo $port redis-server --port $port --bind $two --save "''" --appendonly no --protected-mode no --io-threads 1 ;;
    without) echo $port iperf3 -s -1 -p $port ;;
    curl | wrk) echo 8888 nginx -c /run/ngx/conf ;;
    rstream*) echo $port rstream -p $port $(rstream_of "$1" "$2") ;;
    many* | locked* | bounded*) echo $port /usr/bin/python3 /run/echoes.py $two $port ;;
    forks | family | *link* | loss | silent) echo $port /usr/bin/python3 /run/forks.py $two $port ;;
    esac
}

client_of() {
    case $1 in
    iperf3 | credit-iperf3) echo iperf3 -c $two -p $port -t $((3 * longer)) -f k ;;
    zcopy-iperf3) echo iperf3 -c $two -p $port -t $((3 * longer)) -f k -l 1M ;;
    zcopy-blocks) echo /usr/bin/python3 /run/blocks.py $two $port $((8 * longer)) 40 ;;
    # (a reader that is at it comes in time also on a slow machine)
    zcopy-link-down) echo /usr/bin/python3 /run/blocks.py $two $port $((9 * longer)) 5 ;;
    sockperf | credit-sockperf) echo sockperf pp --tcp -i $two -p $port -t $((3 * longer)) -m 64 ;;
    redis) echo redis-benchmark -h $two -p $port -n $((1500 * longer)) -c 8 -t get --csv ;;
    redis-1) echo redis-benchmark -h $two -p $port -n $((500 * longer)) -c 1 -t set --csv ;;
    curl) echo curl -sS -m 15 -o /run/got -w '%{speed_download}\n' http://$two:8888/file ;;
    wrk) echo wrk -t 1 -c 8 -d $((3 * longer))s http://$two:8888/file ;;
    rstream*) echo rstream -s $two -p $port $(rstream_of "$1" "$2") ;;
    forks) echo /usr/bin/python3 /run/asks.py $two $port 0 ;;
    family) echo /usr/bin/python3 /run/family.py $two $port $longer ;;
    many*) echo /usr/bin/python3 /run/many.py $two $port $(connections_of "$1") 10 $(($(connections_of "$1") / 2)) ;;
    # (root may lock as much as it likes)
    locked*) echo setpriv --reuid=65534 --regid=65534 --clear-groups /usr/bin/python3 /run/many.py $two $port 80 10 $(riding_of "$1") ;;
    bounded*) echo /usr/bin/python3 /run/many.py $two $port 3 1 $(riding_of "$1") ;;
    without) echo iperf3 -c $two -p $port -t 1 -f k ;;
    *link* | loss | silent) echo /usr/bin/python3 /run/asks.py $two $port $((9 * longer)) ;;
    esac
}

connections_of() {
    case $1 in
    many-*) echo "${1#many-}" ;;
    *) echo 200 ;;
    esac
}

# How many connections find room.
riding_of() {
    case $1 in
    locked) echo 30 ;;
    bounded-40) echo 3 ;;
    *) echo 0 ;;
    esac
}

# What limits a client has, in its shell.
limit() {
    case $1 in
    locked-64k) ulimit -l 64 ;;
    locked) ulimit -l 8192 ;;
    bounded-none) bound 0 0 ;;
    bounded-*) bound 4 "${1#bounded-}" ;;
    esac
}

# This process and those that it starts may open the device so often, and have so many objects of it.
bound() {
    echo "$device hca_handle=$1 hca_object=$2" >/run/cgroup/bound/rdma.max && echo $BASHPID >/run/cgroup/bound/cgroup.procs
}

rstream_of() {
    case $1 in
    rstream) echo -S 64 -I 400 -C 1 ;;
    rstream-64k) echo -S 65536 -I 4 -C 60 ;;
    esac
    [ "$2" = rsockets ] || echo -T s
    echo -T b
}

# What happens while a client is at work, from a second after it has connected and an adapter is in use.
meanwhile() {
    local i before
    [[ $1 =~ ^(zcopy-)?(link|loss) ]] || return 0
    before=$(packets)
    for i in {1..200}; do
        ss -tnH state established "dport = :$port" | grep -q . && break
        sleep 0.1
    done
    # (to a link that no adapter uses yet nothing happens)
    for i in {1..50}; do
        [ -n "$before" ] && [ "$(packets)" -lt $((before + 20)) ] || break
        sleep 0.1
    done
    sleep 1
    case ${1#zcopy-} in
    link-down) ip link set eth0 down && sleep 3 && ip link set eth0 up ;;
    link-silent) tc qdisc add dev eth0 root netem loss 100% && sleep 3 && tc qdisc del dev eth0 root ;;
    loss) tc qdisc add dev eth0 root netem loss 2% && sleep 6 && tc qdisc del dev eth0 root ;;
    esac
}

# Drops whoever wants to connect to this machine, or no more.
deaf() {
    if [ "$1" = off ]; then
        nft delete table ip deaf
        return
    fi
    nft add table ip deaf &&
        nft 'add chain ip deaf input { type filter hook input priority 0; }' &&
        nft 'add rule ip deaf input tcp flags & (syn | ack) == syn drop'
}

figure_of() {
    case $1 in
    *iperf3 | without) awk '/receiver/ { for (i = 1; i < NF; i++) if ($(i + 1) == "Kbits/sec") print $i / 1000 }' /run/client ;;
    sockperf | credit-sockperf) sed -n 's/.*Latency is \([0-9.]*\) usec.*/\1/p' /run/client ;;
    redis*) awk -F'"' '/"[SG]ET"/ { print $4 }' /run/client ;;
    curl) cmp -s /run/got /run/www/file && tail -1 /run/client ;;
    wrk) grep -q 'Socket errors\|Non-2xx' /run/client || awk '/Requests\/sec/ && $2 > 0 { print $2 }' /run/client ;;
    rstream*) awk '/^custom/ { print $NF }' /run/client ;;
    forks) sed -n 's/^seconds //p' /run/client ;;
    *link* | loss | silent | family | zcopy-blocks | many* | locked* | bounded*) sed -n 's/^rounds //p' /run/client ;;
    esac
}

unit_of() {
    case $1 in
    *iperf3) echo Mb/s ;;
    *sockperf | rstream*) echo us ;;
    redis* | wrk) echo /s ;;
    curl) echo B/s ;;
    forks) echo s ;;
    *link* | loss | zcopy-blocks) echo rounds ;;
    esac
}

is_less_better() { [[ $1 == *sockperf || $1 == forks || $1 == rstream* ]]; }

packets() { [ ! -d /sys/class/infiniband/rxe0 ] || cat /sys/class/infiniband/rxe0/ports/1/hw_counters/sent_pkts; }

# Does a program in one way. Its figure, in `figure`.
once() {
    local name=${1#siw-} way=$2 status patience=30 meanwhile=
    figure=
    port=$((port + 1))
    rm -f /run/report /run/got /run/client
    : >/run/report && chmod 666 /run/report
    [ "$way" != rsockets ] || patience=15
    [[ $name != many* && $name != locked* ]] || patience=200
    [ "$longer" -eq 1 ] || patience=100
    order "start $way $(server_of "$name" "$way")" >/run/said || { cat /run/said; return 1; }
    meanwhile "$name" &
    meanwhile=$!
    # shellcheck disable=SC2046
    (limit "$name" && exec timeout -k 2 $patience $(with "$way" "$name") $(client_of "$name" "$way")) >/run/client 2>&1 </dev/null
    status=$?
    figure=$(figure_of "$name")
    wait $meanwhile
    order stop
    [ $status -eq 0 ] && [ -n "$figure" ]
}

# Whether all connections of the client that carried anything went by the transport that is wanted. 3: not, but it may have been
# over too early.
by_wanted() {
    local wanted=$wanted
    [[ $name != siw-silent && $name != siw-without ]] || wanted=iwarp
    # (what a ring takes of either: ARCHITECTURE.md)
    case ${name#siw-} in
    many*) /usr/bin/python3 /run/totals.py /run/report 100000 $(($(connections_of "${name#siw-}") / 2)); return ;;
    locked-64k) /usr/bin/python3 /run/totals.py /run/report 0 0; return ;;
    locked) /usr/bin/python3 /run/totals.py /run/report 70 30; return ;;
    bounded-40) /usr/bin/python3 /run/totals.py /run/report 3 3; return ;;
    bounded-*) /usr/bin/python3 /run/totals.py /run/report 3 0; return ;;
    esac
    local lends=
    case $name in
    zcopy-blocks) lends=2 ;;
    zcopy-*) lends=20 ;;
    esac
    if [[ $name == credit-* ]] && ! sends; then
        grep -o '"transport":[^{}]*"operation":[^,]*\|"demotions":[^]]*.' /run/report
        fails_by_adapter && return 1
        return 3
    fi
    # shellcheck disable=SC2086
    /usr/bin/python3 /run/by.py /run/report "$wanted" $lends
    local status=$?
    if [ $status -ne 0 ]; then
        # For whoever wants to know why.
        [ ! -e /run/report ] || cp /run/report "/out/report.$name"
        order "[ ! -e /run/report ] || cp /run/report /out/report.$name.two"
        grep -o '"reason":"[^"]*"' /run/report 2>/dev/null | sort | uniq -c | head -3
    fi
    return $status
}

# Whether a connection was sent by credits, by an adapter's Sends, all of which found a receive (else it would have failed); and none by
# Writes.
sends() {
    grep -q '"flow":"credit",[^{}]*"operation":"send"' /run/report && ! fails_by_adapter
}

fails_by_adapter() { grep -q '"operation":"write"\|adapter_failed' /run/report; }

note() {
    local at=$1,$2 old=${best[$1,$2]:-}
    if [ -z "$old" ]; then
        best[$at]=$3
    elif is_less_better "$1"; then
        best[$at]=$(awk -v a="$old" -v b="$3" 'BEGIN { print (a < b) ? a : b }')
    else
        best[$at]=$(awk -v a="$old" -v b="$3" 'BEGIN { print (a > b) ? a : b }')
    fi
}

# [`by_wanted`], and on a machine so slow that a program was over before it had a ring once more, for longer.
by_wanted_in_time() {
    local status longer=5
    by_wanted
    status=$?
    if [ $status -eq 3 ]; then
        echo "  once more, for longer"
        if once "$name" shunt; then
            by_wanted
            status=$?
        else
            echo "  shunt: $(tail -3 /run/client 2>/dev/null)"
        fi
    fi
    return $status
}

program() {
    local name=$1 run way well=yes before longer=1
    [[ $name =~ $filter ]] || return 0
    for run in $(seq $runs); do
        for way in "${ways[@]}"; do
            # What happens to the link is no comparison.
            [[ $way == rsockets && $name =~ ^(zcopy-)?(link|loss) ]] && continue
            [ "$way" != rsockets ] || [ -z "${rsockets_fails[$name]:-}" ] || continue
            before=$(packets)
            if once "$name" $way; then
                note "$name" $way "$figure"
                # What it says it did, but the adapter does not: it went by kernel TCP.
                if [ $way = rsockets ] && [ "$(packets)" -lt $((before + 20)) ]; then
                    rsockets_fails[$name]="by TCP"
                fi
            elif [ $way = rsockets ]; then
                rsockets_fails[$name]=fails
            else
                well=no
                echo "  $way: $(tail -3 /run/client 2>/dev/null)"
                order 'echo "  server: $(tail -3 /run/server)"'
            fi
            [ $way != shunt ] || by_wanted_in_time || well=no
        done
    done
    if [ $well = yes ]; then
        passed=$((passed + 1))
        echo "test $name ... ok"
    else
        failed=$((failed + 1))
        echo "test $name ... FAILED"
    fi
}

ratio() {
    awk -v a="${1:-0}" -v b="${2:-0}" -v less="$3" 'BEGIN {
        if (a <= 0 || b <= 0) print "-"; else printf "%.2f\n", less == "yes" ? b / a : a / b
    }'
}

table() {
    local name less
    printf '%-11s %-5s %12s %12s %12s   %-12s %s\n' program unit TCP rsockets Shunt "Shunt/TCP" "Shunt/rsockets"
    for name in "${names[@]}"; do
        [[ $name =~ $filter ]] || continue
        less=no
        is_less_better "$name" && less=yes
        [ -z "${rsockets_fails[$name]:-}" ] || best[$name,rsockets]=
        printf '%-11s %-5s %12s %12s %12s   %-12s %s\n' "$name" "$(unit_of "$name")" "${best[$name,tcp]:--}" \
            "${best[$name,rsockets]:-${rsockets_fails[$name]:--}}" "${best[$name,shunt]:--}" \
            "$(ratio "${best[$name,shunt]:-}" "${best[$name,tcp]:-}" $less)" \
            "$(ratio "${best[$name,shunt]:-}" "${best[$name,rsockets]:-}" $less)"
    done
}

join && files && ulimit -n 8192 || exit 1
mkdir -p /run/cgroup && mount -t cgroup2 none /run/cgroup && echo +rdma >/run/cgroup/cgroup.subtree_control && mkdir -p /run/cgroup/bound || exit 1
if [ "$machine" = two ]; then
    obey
    exit
fi
order true || exit 1
names=(rstream rstream-64k iperf3 sockperf credit-iperf3 credit-sockperf redis redis-1 curl wrk forks link-down link-silent loss zcopy-blocks zcopy-iperf3 zcopy-link-down)
on_siw=(siw-iperf3 siw-sockperf siw-redis siw-wrk siw-family siw-link-down)
device=rxe0
if [ "$once" = crowd ]; then
    names=(many locked locked-64k bounded-none bounded-{0..6} bounded-40)
    on_siw=(siw-many-60 siw-locked siw-locked-64k siw-bounded-none siw-bounded-{0..7} siw-bounded-40)
fi
for name in "${names[@]}"; do program "$name"; done
if [ "$once" = no ]; then
    :
elif use_siw && order use_siw; then
    device=siw0
    for name in "${on_siw[@]}"; do program "$name"; done
    if [ "$once" = yes ]; then
        # Nobody reaches a port that nobody knows of.
        deaf on
        program siw-silent
        deaf off
        without='mv /usr/lib/x86_64-linux-gnu/librdmacm.so.1* /run'
        eval "$without"
        order "$without"
        program siw-without
    fi
else
    echo "no siw"
    failed=$((failed + 1))
fi
order exit
[ "$once" != no ] || table
word=ok
[ $failed -eq 0 ] && [ $passed -gt 0 ] || word=FAILED
echo "test result: $word. $passed passed; $failed failed"
[ $word = ok ]
