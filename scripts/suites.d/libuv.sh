# libuv's own tests: loops over sockets and pipes, descriptors passed between processes, fork, spawn.
quick=yes
packages=(dpkg-dev gcc libc6-dev cmake ninja-build iproute2)

prepare() {
    [ -x build/uv_run_tests_a ] && return
    rm -rf libuv1-*
    source_packages "$target/suites" libuv1
    cmake -G Ninja -S libuv1-*/ -B build -DBUILD_TESTING=ON -DCMAKE_BUILD_TYPE=Debug
    ninja -C build uv_run_tests_a
    mkdir -p build/test
    cp -r libuv1-*/test/fixtures build/test/
}

# Not about sockets, processes or waiting; or in want of an address outside that does not answer.
elsewhere='^(fs_|thread|mutex|rwlock|semaphore|barrier|condvar|once|utf8|idna|strscpy|strtok|random|tty|pty'
elsewhere+='|cwd|homedir|tmpdir|platform|uname|gethost|get_|env|process_title|dlerror|error_message|version'
elsewhere+='|getters|ip4|ip6|ip_name|hrtime|clock|cpu|getaddrinfo|getnameinfo|loop_update|timer_|async_null'
elsewhere+='|tcp_connect_timeout|tcp_close_while|tcp6_local|fork_fs|fork_threadpool|fail_|pass_always|platform)'

run() {
    local name said status tests=("$@")
    cd build || return
    export UV_RUN_AS_ROOT=1
    [ $# -gt 0 ] || mapfile -t tests < <(./uv_run_tests_a --list | awk '{ print $1 }' | grep -vE "$elsewhere")
    for name in "${tests[@]}"; do
        said=$(under 40 ./uv_run_tests_a "$name" 2>&1)
        status=$?
        if [ $status -eq 0 ] && ! grep -q '^not ok' <<<"$said"; then
            grep -q '# SKIP' <<<"$said" || echo "pass $name" >&3
        else
            echo "fail $name" >&3
            printf '== %s: %s\n%s\n' "$name" $status "$said"
        fi
    done
}
