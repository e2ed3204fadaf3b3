//! Why a connection is on kernel TCP. One table: the code that stands in reports, and a sentence for
//! people.

macro_rules! reasons {
    ($($name:ident $code:literal $text:literal,)*) => {
        /// A reason code.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Reason { $($name,)* }

        impl Reason {
            const ALL: &[Self] = &[$(Self::$name,)*];

            /// The code, as it stands in reports.
            #[must_use]
            pub const fn code(self) -> &'static str {
                match self { $(Self::$name => $code,)* }
            }

            /// The reason in words.
            #[must_use]
            pub const fn text(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }
    };
}

reasons! {
    None "" "",
    Undecided "undecided" "nothing was sent yet, or the other end has not answered the offer yet",
    TransportTcp "transport_tcp" "SHUNT_TRANSPORT=tcp was set",
    Rule "rule" "a rule of SHUNT_RULES says tcp",
    NoProvider "no_provider" "the transport that SHUNT_TRANSPORT or a rule of SHUNT_RULES names does not serve this connection",
    PeerPlain "peer_plain" "the other end does not run Shunt",
    PeerRemote "peer_remote" "the other end is not on this host, and no transport between hosts is available",
    PeerUser "peer_user" "the other end belongs to another user and SHUNT_PEER_USERS does not allow that",
    PeerForged "peer_forged" "the offer did not come from the owner of the connection",
    PeerGone "peer_gone" "the other end took its offer back or went away",
    Declined "declined" "the other end asked for software iWARP, and this end could not agree: its program had sent something already, or shares the socket",
    NotMapped "not_mapped" "the port mapper of the other host has denied software iWARP, or has not answered (in time)",
    PeerSilent "peer_silent" "the other end runs Shunt but did not answer the offer",
    NoSockDiag "no_sock_diag" "the kernel does not answer who owns a connection (sock_diag)",
    NoMemory "no_memory" "no shared memory, address space or descriptor could be had",
    NoSlot "no_slot" "all slots of the shared arenas are in use, and the other end could not be told of another arena",
    BoardTaken "board_taken" "the listener's rendezvous name is already taken",
    FdTooHigh "fd_too_high" "the descriptor number is beyond what Shunt follows",
    Uncounted "uncounted" "bytes went round the library before the stream could move",
    NotListened "not_listened" "the listening socket came from outside the library's view",
    Forked "forked" "the socket, or the epoll set that it is in, is used by too many processes since fork",
    Exec "exec" "the socket was kept open across exec",
    Passed "passed" "the descriptor was passed to another process",
    Stdio "stdio" "a stdio stream was opened on the socket",
    UrgentData "urgent_data" "urgent (out-of-band) data is used",
    SocketOption "socket_option" "a socket option is set that only the kernel can serve",
    AsyncIo "async_io" "signal-driven or asynchronous I/O is used on the socket",
    Splice "splice" "splice was used on the socket",
    RawSyscall "raw_syscall" "a call of the program's on the socket is one that only the kernel knows",
    Seccomp "seccomp" "the process entered a system-call sandbox",
    Unshared "unshared" "a thread of the process has descriptors of its own (unshare)",
    Stalled "stalled" "the reader has taken nothing for seconds, or both ends waited for room: the kernel's buffers hold more",
    AdapterFailed "adapter_failed" "the RDMA adapter, its link or the peer's has failed, or was given up: software iWARP goes on",
    AdapterRoom "adapter_room" "the RDMA adapter, or the limit on locked memory, has no room for this connection, here or at the other end: it stays on software iWARP",
    PeerDemoted "peer_demoted" "the other end went back to kernel TCP",
    PeerWentRound "peer_went_round" "bytes of the other end came by the kernel, round its library",
    PeerBroke "peer_broke" "the other end broke the protocol; the connection was reset",
    ByHolder "by_holder" "another process that holds the socket since fork sent it back to kernel TCP",
    Operator "operator" "an operator asked for it",
    ZcopyOff "zcopy_off" "SHUNT_ZCOPY=off was set",
    ZcopyUser "zcopy_user" "the other end belongs to another user, so its memory may not be looked into",
    ZcopyDenied "zcopy_denied" "the kernel does not let this process look into the other end's memory (not dumpable, Yama, a sandbox)",
    ZcopyHidden "zcopy_hidden" "the other end's process cannot be told from here (another PID namespace)",
    ZcopyThreads "zcopy_threads" "messages are not held in place: the process has several threads, or shares its memory with another",
    ZcopySignals "zcopy_signals" "messages are not held in place: SIGSEGV or SIGSYS is blocked, ignored or the program's own",
    ZcopySandbox "zcopy_sandbox" "messages are not held in place: the process is in a system-call sandbox",
    ZcopyKernel "zcopy_kernel" "messages are not held in place: the kernel or the processor lacks something",
    ZcopyMemory "zcopy_memory" "messages are not held in place: some were on a stack, in shared memory or in a file, or could not be protected",
    ZcopyPipes "zcopy_pipes" "messages are not held in place: no pipe could be had, here or at the other end",
}

impl Reason {
    /// The reason with this number, for records read from another process.
    #[must_use]
    pub fn from_number(n: u8) -> Self {
        Self::ALL.get(usize::from(n)).copied().unwrap_or(Self::None)
    }
}
