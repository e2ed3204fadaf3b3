//! What a peer can do against the rules of SDP. One table: a name and the rule in words.

macro_rules! violations {
    ($($name:ident $text:literal,)*) => {
        /// A rule that the peer broke. The connection is aborted.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Violation { $($name,)* }

        impl Violation {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The rule, in words.
            #[must_use]
            pub const fn text(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }
    };
}

violations! {
    Short "a message has at least the 16 bytes of its header",
    Length "a message is as long as its header says",
    TooLarge "a message fits the receive buffer that was told of",
    ReservedMid "message identifiers 0x0F to 0x3F and 0x80 to 0xFC are reserved",
    ExperimentalMid "experimental messages (0x40 to 0x7F) are for peers that have agreed on them",
    Unexpected "Hello and HelloAck come first, once, and nothing else comes there",
    ExtendedHeader "a message has its extended header",
    Payload "only Data, SrcAvail and SinkAvail carry payload",
    UrgentOutsideData "the urgent byte (OOB_PRES) comes in a Data message",
    UrgentWithoutPayload "a message with the urgent byte (OOB_PRES) has payload: that byte is its last",
    HelloFlags "Hello and HelloAck have no flags",
    HelloSequence "Hello and HelloAck have message number 0",
    Version "the major version is one that this side speaks",
    MaxAdverts "a side takes at least one advert",
    Ord "at least one RDMA Read may be outstanding (ORD)",
    Ird "at least one RDMA Read is answered (IRD)",
    FewBuffers "at least 3 receive buffers are posted",
    BufferSize "a receive buffer has 37 bytes to 2 GiB",
    IpVersion "addresses are IPv4 or IPv6",
    Port "a port is not 0",
    AdvertLength "an advertised buffer has 1 byte to 2 GiB",
    AdvertPayload "what SrcAvail carries is the beginning of the buffer that it advertises",
    WrittenLength "RdmaWrCompl says what was written to the buffer that is advertised",
    SmallAdvert "a sink advertises buffers larger than its receive buffers",
    Mode "a mode is buffered, combined or pipelined",
    Service "SuspComm begins with the constants of the service identifier",
    Sequence "messages come in the order of their numbers",
    Acknowledgement "what is acknowledged was sent, and stays acknowledged",
    Overrun "a message is sent only to a receive buffer that is posted",
    Room "what a packetized direction carries is what its receiver has told of room for",
    HandedBack "what was taken out of a receive buffer was sent, and stays taken",
    NonDiscards "a sink has kept no more messages with payload than were sent",
    SameMode "ModeChange names another mode than the one that holds",
    Transition "modes change as their master may change them",
    AdvertMode "SrcAvail carries payload in combined mode, none in pipelined mode, and is not sent in buffered mode",
}
