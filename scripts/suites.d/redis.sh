# Redis's own tests against Debian's redis: servers, replication, redis-cli and redis-benchmark.
packages=(dpkg-dev redis-server redis-tools tcl iproute2)

prepare() {
    local program
    [ -f redis-*/ready ] && return
    rm -rf redis-*/
    source_packages "$target/suites" redis
    cd redis-*/
    for program in server cli benchmark check-aof check-rdb sentinel; do
        ln -sf "$(command -v redis-$program)" src/redis-$program
    done
    mkdir -p tests/tmp
    touch ready
}

# What lives from connections; the rest of the suite is about commands and data types.
units=(unit/networking unit/protocol unit/quit unit/auth unit/pubsub unit/pubsubshard unit/multi unit/tracking
    unit/limits unit/querybuf unit/replybufsize unit/pendingquerybuf unit/introspection unit/shutdown unit/wait
    integration/replication-3 integration/block-repl integration/replication-buffer integration/redis-cli
    integration/redis-benchmark integration/failover integration/shutdown integration/psync2-pingoff)

# Tests follow on one another: a lost one is run again with all the others.
run() {
    local unit words=()
    cd redis-*/ || return
    for unit in "${units[@]}"; do
        [ -f "tests/$unit.tcl" ] && words+=(--single "$unit")
    done
    under 600 tclsh tests/test_helper.tcl --clients 3 --timeout 120 "${words[@]}" |
        sed -E 's/\x1b\[[0-9;]*m//g' | tee ../redis.log |
        perl -ne 'print "pass $1\n" if /^\[ok\]: (.*) \(\d+ ms\)$/;
            print "fail ", substr($1, 0, 160), "\n" if /^\[(?:err|exception|TIMEOUT)\]:? (.*?)(?: in tests\/.*)?$/' >&3
}
