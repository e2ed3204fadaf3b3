//! Rules: a table of good and bad lines, and properties: what is printed reads as it was, matching is what a
//! second, naive way to match says, and no bytes whatever do harm.

use super::*;
use proptest::prelude::*;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

fn rule(line: &str) -> Rule {
    match line::parse(line.as_bytes()) {
        Ok(Some(rule)) => rule,
        other => panic!("{line}: {other:?}"),
    }
}

fn problem(line: &str) -> Problem {
    match line::parse(line.as_bytes()) {
        Err(problem) => problem,
        other => panic!("{line}: {other:?}"),
    }
}

fn at(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// A line, and what it is understood as.
const GOOD: &[(&str, &str)] = &[
    ("use tcp connect * *:*", "use tcp connect * *:*"),
    (
        "  use\tshm  listen nginx 127.0.0.1:80  # web",
        "use shm listen nginx 127.0.0.1:80",
    ),
    (
        "use auto connect redis-? 10.0.0.0/8:6379-6380\r",
        "use auto connect redis-? 10.0.0.0/8:6379-6380",
    ),
    (
        "use iwarp connect /opt/*/bin/x 192.0.2.7/24:*",
        "use iwarp connect /opt/*/bin/x 192.0.2.0/24:*",
    ),
    (
        "use verbs listen [a-c]* [fd00::1]:7",
        "use verbs listen [a-c]* [fd00::1]:7",
    ),
    (
        "use tcp listen x [fd00:1::7]/32:1-65535",
        "use tcp listen x [fd00:1::]/32:*",
    ),
    (
        "use tcp listen x 1.2.3.4/32:5-5",
        "use tcp listen x 1.2.3.4:5",
    ),
    (
        "use tcp connect x 0.0.0.0/0:9",
        "use tcp connect x 0.0.0.0/0:9",
    ),
    ("use tcp connect x [::]/0:9", "use tcp connect x [::]/0:9"),
    (
        "use tcp connect x [::ffff:10.1.1.1]/104:9",
        "use tcp connect x 10.0.0.0/8:9",
    ),
    ("use tcp connect a#b *:80 #", "use tcp connect a#b *:80"),
];

#[test]
fn good_lines_are_understood() {
    for (line, meaning) in GOOD {
        assert_eq!(rule(line).to_string(), *meaning, "{line}");
    }
    for nothing in ["", "   \t ", "#", "# use tcp connect * *:*", "\r"] {
        assert_eq!(line::parse(nothing.as_bytes()), Ok(None), "{nothing:?}");
    }
}

#[test]
fn bad_lines_say_what_is_allowed() {
    let table: &[(&str, &str, &str)] = &[
        ("deny tcp connect * *:*", "deny", "begins with use"),
        ("USE tcp connect * *:*", "USE", "begins with use"),
        (
            "use tcp connect *",
            "not 4",
            "use TRANSPORT connect|listen PROGRAM ADDRESS:PORT",
        ),
        ("use tcp connect * *:* x", "not 6", "use TRANSPORT"),
        ("use", "not 1", "use TRANSPORT"),
        (
            "use sdp connect * *:*",
            "sdp",
            "auto, shm, iwarp, verbs, tcp",
        ),
        ("use tcp server * *:*", "server", "connect, listen"),
        ("use tcp connect a\u{7f}b *:*", "a?b", "control characters"),
        ("use tcp connect * *", "*", "the port is missing"),
        (
            "use tcp connect * 10.0.0.1",
            "10.0.0.1",
            "the port is missing",
        ),
        ("use tcp connect * [::1]", "[::1]", "the port is missing"),
        (
            "use tcp connect * [::1]/64",
            "[::1]/64",
            "the port is missing",
        ),
        (
            "use tcp connect * localhost:80",
            "localhost",
            "[IPv6] address in brackets",
        ),
        ("use tcp connect * 10.0.0:80", "10.0.0", "an IPv4 address"),
        (
            "use tcp connect * 10.0.0.256:80",
            "10.0.0.256",
            "an IPv4 address",
        ),
        ("use tcp connect * ::1:80", "::1", "in brackets"),
        ("use tcp connect * [::1:80", "[::1:80", "in brackets"),
        (
            "use tcp connect * [127.0.0.1]:80",
            "[127.0.0.1]",
            "in brackets",
        ),
        ("use tcp connect * [fd00::/8]:80", "[fd00::/8]", "/PREFIX"),
        ("use tcp connect * [fd00::]x:80", "[fd00::]x", "/PREFIX"),
        ("use tcp connect * */8:80", "*/8", "/PREFIX"),
        (
            "use tcp connect * [fe80::1%lo]:80",
            "[fe80::1%lo]",
            "in brackets",
        ),
        ("use tcp connect * 10.0.0.0/33:80", "/33", "/0 to /32"),
        ("use tcp connect * 10.0.0.0/:80", "/:", "/0 to /32"),
        ("use tcp connect * 10.0.0.0/+8:80", "/+8", "/0 to /32"),
        (
            "use tcp connect * 10.0.0.0/255.0.0.0:80",
            "/255.0.0.0",
            "/0 to /32",
        ),
        ("use tcp connect * [fd00::]/129:80", "/129", "/0 to /128"),
        ("use tcp connect * *:", ":", "1 to 65535"),
        ("use tcp connect * *:80#", "80#", "1 to 65535"),
        ("use tcp connect * *:0", "0", "1 to 65535"),
        ("use tcp connect * *:http", "http", "1 to 65535"),
        ("use tcp connect * *:65536", "65536", "1 to 65535"),
        ("use tcp connect * *:90-80", "90-80", "LOW-HIGH"),
        ("use tcp connect * *:80-", "80-", "LOW-HIGH"),
        ("use tcp connect * *:+80", "+80", "1 to 65535"),
        ("use tcp connect * *:80-90-95", "80-90-95", "LOW-HIGH"),
        ("use tcp connect * *:*-80", "*-80", "LOW-HIGH"),
    ];
    for (line, named, allowed) in table {
        let text = problem(line).to_string();
        assert!(
            text.contains(named) && text.contains(allowed),
            "{line}: {text}"
        );
        assert!(!text.contains(char::is_control), "{line}: {text:?}");
    }
    assert_eq!(
        line::parse(b"use tcp connect \xff *:*"),
        Err(Problem::NotText)
    );
    let long = format!("use {} connect * *:*", "x".repeat(500));
    assert!(problem(&long).to_string().len() < 120);
}

#[test]
fn a_wrong_line_is_told_and_the_others_hold() {
    let parsed =
        parse(b"# rules\nuse tcp connect a *:1\nuse it\n\nuse shm listen b *:2\n\xff\nuse tcp x");
    let lines: Vec<_> = parsed.rules.iter().map(|r| r.line).collect();
    let wrong: Vec<_> = parsed.problems.iter().map(|p| p.line).collect();
    assert_eq!((lines, wrong), (vec![2, 5], vec![3, 6, 7]));
}

#[test]
fn programs_match_by_name_or_by_path() {
    let who = Identity::new(b"bin/python3", Some(b"/usr/bin/python3.13"));
    for (pattern, matches) in [
        ("*", true),
        ("python3", true),
        ("python", false),
        ("python?", true),
        ("[op]y*3", true),
        ("*.13", false),
        ("bin/python3", false),
        ("/usr/bin/*", true),
        ("*/python3.13", true),
        ("/*3", true),
        ("/usr/bin/python3", false),
        ("/usr/*", true),
        ("\\*", false),
    ] {
        let line = format!("use tcp connect {pattern} *:*");
        assert_eq!(rule(&line).program.matches(&who), matches, "{pattern}");
    }
    let unknown = Identity::new(b"x", None);
    assert!(!rule("use tcp connect */* *:*").program.matches(&unknown));
    assert!(rule("use tcp connect * *:*").program.matches(&unknown));
    assert!(
        rule("use tcp connect * *:*")
            .program
            .matches(&Identity::default())
    );
    let odd = Identity::new(b"a b\xff", None);
    assert!(rule("use tcp connect a?b? *:*").program.matches(&odd));
}

#[test]
fn the_first_rule_that_matches_holds() {
    let file = b"use shm connect other *:*\nuse tcp connect x 127.0.0.0/8:80\n\
        use verbs listen x 0.0.0.0:80\nuse shm connect x 127.0.0.1:*\nuse iwarp connect x *:81\n";
    let rules = Rules::of(&parse(file).rules, &Identity::new(b"/bin/x", None));
    for (address, wanted) in [
        ("127.0.0.1:80", Some(Wanted::Tcp)),
        ("[::ffff:127.0.0.1]:80", Some(Wanted::Tcp)),
        ("0.0.0.0:80", Some(Wanted::Tcp)),
        ("127.0.0.1:81", Some(Wanted::Shm)),
        ("127.0.0.2:81", Some(Wanted::Iwarp)),
        ("[::]:81", Some(Wanted::Iwarp)),
        ("127.0.0.2:82", None),
    ] {
        assert_eq!(rules.connect(at(address)), wanted, "{address}");
    }
    assert_eq!(rules.listen(at("0.0.0.0:80")), Some(Wanted::Verbs));
    assert_eq!(rules.listen(at("127.0.0.1:80")), None);
    assert_eq!(rules.listen(at("[::]:80")), Some(Wanted::Verbs));
    assert_eq!(rules.listen(at("[::1]:80")), None);
    let mapped = Place::parse("127.0.0.0/8:*").unwrap();
    assert!(mapped.contains(&at("[::ffff:127.0.0.1]:80")));
    let others = Rules::of(&parse(file).rules, &Identity::new(b"y", None));
    assert!(others.is_empty() && !rules.is_empty());
}

#[test]
fn a_rule_that_leaves_nothing_for_another_is_found() {
    let hidden = |file: &str| {
        let parsed = parse(file.as_bytes());
        let last = parsed.rules.last().unwrap();
        parsed.hidden_by(last).map(|r| r.line)
    };
    let last = "use shm connect x 10.1.0.0/16:80-90";
    assert_eq!(hidden(last), None);
    for (first, by) in [
        ("use tcp connect * *:*", Some(1)),
        ("use tcp connect x 10.0.0.0/8:1-90", Some(1)),
        ("use tcp connect x 10.0.0.0/8:81-90", None),
        ("use tcp connect x 10.1.2.0/24:*", None),
        ("use tcp connect x [::]/0:*", None),
        ("use tcp listen * *:*", None),
        ("use tcp connect y *:*", None),
    ] {
        assert_eq!(hidden(&format!("{first}\n{last}\n")), by, "{first}");
    }
}

#[test]
fn only_regular_files_of_sensible_size_are_read() {
    let failed = read(b"/nonexistent/rules").unwrap_err();
    assert_eq!(failed.to_string(), "No such file or directory");
    assert_eq!(
        read(b"a\0b").unwrap_err().to_string(),
        "No such file or directory"
    );
    for other in ["/", "/dev/zero", "/dev/null"] {
        assert_eq!(read(other.as_bytes()), Err(Unreadable::NotAFile), "{other}");
    }
    let name = std::env::temp_dir().join(format!("shunt-rules-{}", std::process::id()));
    let bytes = name.to_str().unwrap().as_bytes();
    for (size, good) in [
        (0, true),
        (9000, true),
        (1 << 20, true),
        ((1 << 20) + 1, false),
    ] {
        std::fs::write(&name, vec![b'x'; size]).unwrap();
        assert_eq!(
            read(bytes).map(|c| c.len()).ok(),
            good.then_some(size),
            "{size}"
        );
    }
    std::fs::remove_file(&name).unwrap();
}

fn ip() -> impl Strategy<Value = IpAddr> {
    // Few bits differ, so that networks and addresses meet.
    let v4 = prop_oneof![
        any::<u32>(),
        (0..4u32).prop_map(|n| 0x0a00_0000 | n << 22 | n)
    ];
    let v6 = prop_oneof![
        any::<u128>(),
        (0..4u128).prop_map(|n| (0xfd << 120) | n << 60 | n)
    ];
    prop_oneof![
        v4.prop_map(|n| IpAddr::V4(Ipv4Addr::from(n))),
        v6.prop_map(|n| IpAddr::V6(Ipv6Addr::from(n))),
    ]
}

fn place() -> impl Strategy<Value = (Option<(IpAddr, u32)>, (u16, u16))> {
    let net = (ip(), 0..=128u32).prop_map(|(ip, n)| (ip, if ip.is_ipv4() { n % 33 } else { n }));
    let port = prop_oneof![1..10u16, 1..=u16::MAX];
    let ports = (port.clone(), port).prop_map(|(a, b)| (a.min(b), a.max(b)));
    (proptest::option::weighted(0.8, net), ports)
}

fn written((net, (first, last)): &(Option<(IpAddr, u32)>, (u16, u16))) -> String {
    match net {
        None => format!("*:{first}-{last}"),
        Some((IpAddr::V4(ip), n)) => format!("{ip}/{n}:{first}-{last}"),
        Some((IpAddr::V6(ip), n)) => format!("[{ip}]/{n}:{first}-{last}"),
    }
}

/// Whether the first bits agree, one by one.
fn agree(one: &[u8], other: &[u8], bits: u32) -> bool {
    let bit = |bytes: &[u8], i: u32| bytes[i as usize / 8] >> (7 - i % 8) & 1;
    (0..bits).all(|i| bit(one, i) == bit(other, i))
}

fn naive(net: Option<(IpAddr, u32)>, ip: IpAddr) -> bool {
    match (net, ip) {
        (None, _) => true,
        (Some((IpAddr::V4(a), n)), IpAddr::V4(b)) => agree(&a.octets(), &b.octets(), n),
        (Some((IpAddr::V6(a), n)), IpAddr::V6(b)) => agree(&a.octets(), &b.octets(), n),
        _ => false,
    }
}

fn any_rule() -> impl Strategy<Value = String> {
    let word = |words: &'static [&str]| proptest::sample::select(words);
    let program = "[a-zA-Z0-9*?/._\\\\+=:é-][a-zA-Z0-9*?/._\\[\\]#!-]{0,12}";
    (
        word(Wanted::WORDS),
        word(&["connect", "listen"]),
        program,
        place(),
    )
        .prop_map(|(wanted, role, program, place)| {
            format!("use {wanted} {role} {program} {}", written(&place))
        })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1000) })]

    #[test]
    fn what_is_printed_reads_as_it_was(line in any_rule()) {
        let rule = rule(&line);
        prop_assert_eq!(&super::tests::rule(&rule.to_string()), &rule);
        prop_assert!(rule.covers(&rule));
    }

    #[test]
    fn networks_are_the_bits_in_front(place in place(), ip in ip(), port in 1..12u16) {
        let read = Place::parse(&written(&place)).unwrap();
        let (net, (first, last)) = place;
        // (a mapped address is IPv4: random ones are none)
        let expected = naive(net, ip) && (first..=last).contains(&port);
        prop_assert_eq!(read.contains(&SocketAddr::new(ip, port)), expected);
    }

    #[test]
    fn what_covers_contains_all(one in place(), other in place(), ip in ip(), port in 1..12u16) {
        let (one, other) = (Place::parse(&written(&one)).unwrap(), Place::parse(&written(&other)).unwrap());
        let address = SocketAddr::new(ip, port);
        prop_assert!(!one.covers(&other) || !other.contains(&address) || one.contains(&address));
    }

    #[test]
    fn no_bytes_do_harm(content in proptest::collection::vec(any::<u8>(), 0..300)) {
        let parsed = parse(&content);
        let lines = content.split(|&b| b == b'\n').count();
        prop_assert!(parsed.rules.len() + parsed.problems.len() <= lines);
        for p in &parsed.problems {
            prop_assert!(!p.what.to_string().contains(char::is_control));
        }
    }

    #[test]
    fn nearly_rules_do_no_harm(line in "use (tcp|shm|x) (connect|listen) [*a/?\\[!\\\\-]{1,4} [0-9.*:/\\[\\]-]{1,24}") {
        if let Ok(Some(rule)) = line::parse(line.as_bytes()) {
            prop_assert_eq!(&super::tests::rule(&rule.to_string()), &rule);
            let _ = rule.program.matches(&Identity::new(b"a", Some(b"/a/a")));
        }
    }

    #[test]
    fn a_wrong_line_changes_nothing_else(lines in proptest::collection::vec(any_rule(), 1..6), at in any::<prop::sample::Index>()) {
        let good = parse(lines.join("\n").as_bytes());
        let mut with = lines.clone();
        let at = at.index(lines.len() + 1);
        with.insert(at, "use this".to_owned());
        let parsed = parse(with.join("\n").as_bytes());
        let rules = |p: &Parsed| p.rules.iter().map(|r| r.what.clone()).collect::<Vec<_>>();
        prop_assert_eq!(rules(&parsed), rules(&good));
        prop_assert_eq!(parsed.problems, vec![At { line: at + 1, what: Problem::Words(2) }]);
    }
}
