//! Any bytes as a file of rules: each line is a rule, a problem or nothing.
#![no_main]

use libfuzzer_sys::fuzz_target;
use transport::rules;

fuzz_target!(|bytes: &[u8]| {
    let parsed = rules::parse(bytes);
    let lines = bytes.split(|byte| *byte == b'\n').count();
    assert!(parsed.rules.len() + parsed.problems.len() <= lines);
    for rule in &parsed.rules {
        assert!(rule.line <= lines);
        let _ = parsed.hidden_by(rule);
    }
});
