# libevent's regression tests, a process for each, by epoll, poll and select at once: they mostly sleep.
packages=(dpkg-dev gcc libc6-dev cmake ninja-build libssl-dev zlib1g-dev iproute2)

prepare() {
    [ -x build/bin/regress ] && return
    rm -rf libevent-*/
    source_packages "$target/suites" libevent
    cmake -G Ninja -S libevent-*/ -B build -DEVENT__LIBRARY_TYPE=STATIC -DEVENT__DISABLE_BENCHMARK=ON \
        -DEVENT__DISABLE_SAMPLES=ON -DCMAKE_BUILD_TYPE=Debug
    ninja -C build
}

# Results of one backend, as "OK" and "FAILED" at the ends of lines that may have been broken by warnings.
through() {
    local backend=$1
    shift
    under 240 "$@" | tee "../$backend.log" | perl -ne 'BEGIN { $| = 1 }
        $name = $1 if m{^(\w+/\w+): };
        next unless defined $name;
        if (/\bOK\s*$/) { print "pass '"$backend"':$name\n"; undef $name }
        elsif (/FAILED\]\s*$/) { print "fail '"$backend"':$name\n"; undef $name }
        elsif (/(SKIPPED|DISABLED)\s*$/) { undef $name }' >&3
}

run() {
    local backend tests
    cd build || return
    for backend in epoll poll select; do
        # All of the groups that are about sockets, or the given names of this backend.
        tests=(main/.. et/.. evbuffer/add_file.. bufferevent/.. http/.. rpc/.. listener/.. thread/.. ssl/..)
        if [ $# -gt 0 ]; then
            mapfile -t tests < <(printf '%s\n' "$@" | sed -n "s/^$backend://p")
            [ ${#tests[@]} -gt 0 ] || continue
        fi
        tests=(bin/regress --timeout 20 "${tests[@]}")
        case $backend in
        epoll) through epoll "${tests[@]}" & ;;
        poll) through poll env EVENT_NOEPOLL=1 "${tests[@]}" & ;;
        select) through select env EVENT_NOEPOLL=1 EVENT_NOPOLL=1 "${tests[@]}" & ;;
        esac
    done
    wait
}
