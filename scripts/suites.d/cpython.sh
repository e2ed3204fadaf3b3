# CPython's tests of sockets, servers, protocols, event loops and child processes.
packages=(python3 iproute2)

modules=(test_socket test_socketserver test_select test_poll test_epoll test_selectors test_ssl test_httplib
    test_ftplib test_smtplib test_poplib test_imaplib test_nntplib test_telnetlib test_xmlrpc test_docxmlrpc
    test_asyncore test_asynchat test_wsgiref test_robotparser test_urllib2_localnet test_subprocess test_logging
    test_os test_asyncio.test_events test_asyncio.test_base_events test_asyncio.test_sendfile
    test_asyncio.test_server test_asyncio.test_sock_lowlevel test_asyncio.test_ssl test_asyncio.test_sslproto
    test_asyncio.test_streams test_asyncio.test_subprocess test_asyncio.test_unix_events
    test_asyncio.test_buffered_proto test_asyncio.test_selector_events)

python=/usr/bin/python3

prepare() {
    $python -c 'import test.test_socket' && return
    install_packages "lib$($python -c 'import sys; print("python%d.%d" % sys.version_info[:2])')-testsuite"
    $python -c 'import test.test_socket'
}

# A process for each module, two at a time; lost tests alone, so that one that hangs hides no other.
run() {
    local name names=()
    if [ $# -gt 0 ]; then
        names=("$@")
    else
        for name in "${modules[@]}"; do
            # (some modules are gone from later versions)
            $python -c "import importlib.util as u, sys; sys.exit(not u.find_spec('test.$name'))" && names+=("test.$name")
        done
    fi
    for name in "${names[@]}"; do
        while [ "$(jobs -rp | wc -l)" -ge 2 ]; do wait -n; done
        under 170 $python "$here/cpython.py" 150 "$name" 2>&1 &
    done
    wait
}
