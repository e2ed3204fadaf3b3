//! As much of a JSON reader as the report needs; strict, so that a malformed report fails a test.

use std::collections::BTreeMap;

#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    Null,
    Bool(bool),
    Number(f64),
    Text(String),
    List(Vec<Self>),
    Map(BTreeMap<String, Self>),
}

impl Value {
    /// A member of a map; fails when the key is missing, since the keys are fixed.
    #[track_caller]
    pub fn get(&self, key: &str) -> &Self {
        let Self::Map(map) = self else {
            panic!("not a map: {self:?}")
        };
        map.get(key)
            .unwrap_or_else(|| panic!("no key {key:?} in {self:?}"))
    }

    #[track_caller]
    pub fn number(&self) -> u64 {
        let Self::Number(n) = self else {
            panic!("not a number: {self:?}")
        };
        assert!(*n >= 0.0 && n.fract() == 0.0, "not a count: {n}");
        *n as u64
    }

    #[track_caller]
    pub fn text(&self) -> &str {
        let Self::Text(t) = self else {
            panic!("not a text: {self:?}")
        };
        t
    }

    /// A text, or nothing for null.
    #[track_caller]
    pub fn optional_text(&self) -> Option<&str> {
        if *self == Self::Null {
            None
        } else {
            Some(self.text())
        }
    }

    #[track_caller]
    pub fn list(&self) -> &[Self] {
        let Self::List(l) = self else {
            panic!("not a list: {self:?}")
        };
        l
    }
}

/// Reads one value that fills the whole text.
pub fn parse(text: &str) -> Result<Value, String> {
    let mut p = Parser {
        bytes: text.as_bytes(),
        at: 0,
    };
    let value = p.value()?;
    p.space();
    if p.at == p.bytes.len() {
        Ok(value)
    } else {
        Err(p.error("more text after the value"))
    }
}

struct Parser<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Parser<'_> {
    fn error(&self, what: &str) -> String {
        format!("{what} at byte {}", self.at)
    }

    fn peek(&self) -> u8 {
        self.bytes.get(self.at).copied().unwrap_or(0)
    }

    fn space(&mut self) {
        while self.peek().is_ascii_whitespace() {
            self.at += 1;
        }
    }

    fn take(&mut self, byte: u8) -> Result<(), String> {
        self.space();
        if self.peek() == byte {
            self.at += 1;
            Ok(())
        } else {
            Err(self.error(&format!("no {:?}", char::from(byte))))
        }
    }

    fn word(&mut self, word: &str, value: Value) -> Result<Value, String> {
        if self.bytes[self.at..].starts_with(word.as_bytes()) {
            self.at += word.len();
            Ok(value)
        } else {
            Err(self.error("unknown word"))
        }
    }

    fn value(&mut self) -> Result<Value, String> {
        self.space();
        match self.peek() {
            b'{' => self.map(),
            b'[' => self.items(),
            b'"' => self.string().map(Value::Text),
            b'n' => self.word("null", Value::Null),
            b't' => self.word("true", Value::Bool(true)),
            b'f' => self.word("false", Value::Bool(false)),
            _ => self.digits(),
        }
    }

    fn map(&mut self) -> Result<Value, String> {
        self.take(b'{')?;
        let mut map = BTreeMap::new();
        self.space();
        while self.peek() != b'}' {
            self.space();
            let key = self.string()?;
            self.take(b':')?;
            if map.insert(key, self.value()?).is_some() {
                return Err(self.error("a key twice"));
            }
            self.space();
            if self.peek() != b'}' {
                self.take(b',')?;
            }
        }
        self.take(b'}')?;
        Ok(Value::Map(map))
    }

    fn items(&mut self) -> Result<Value, String> {
        self.take(b'[')?;
        let mut list = Vec::new();
        self.space();
        while self.peek() != b']' {
            list.push(self.value()?);
            self.space();
            if self.peek() != b']' {
                self.take(b',')?;
            }
        }
        self.take(b']')?;
        Ok(Value::List(list))
    }

    fn string(&mut self) -> Result<String, String> {
        self.take(b'"')?;
        let mut out = Vec::new();
        loop {
            let byte = self.peek();
            self.at += 1;
            match byte {
                b'"' => return String::from_utf8(out).map_err(|e| e.to_string()),
                b'\\' => {
                    let escape = self.peek();
                    self.at += 1;
                    match escape {
                        b'n' => out.push(b'\n'),
                        b't' => out.push(b'\t'),
                        b'r' => out.push(b'\r'),
                        b'"' | b'\\' | b'/' => out.push(escape),
                        b'u' => {
                            let end = (self.at + 4).min(self.bytes.len());
                            let hex = std::str::from_utf8(&self.bytes[self.at..end]);
                            let code = u32::from_str_radix(hex.unwrap_or(""), 16);
                            let c = code.ok().and_then(char::from_u32).unwrap_or('\u{fffd}');
                            out.extend_from_slice(c.to_string().as_bytes());
                            self.at = end;
                        }
                        _ => return Err(self.error("bad escape")),
                    }
                }
                0..0x20 => return Err(self.error("control character or end in a string")),
                _ => out.push(byte),
            }
        }
    }

    fn digits(&mut self) -> Result<Value, String> {
        let start = self.at;
        while matches!(self.peek(), b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E') {
            self.at += 1;
        }
        let text = std::str::from_utf8(&self.bytes[start..self.at]).unwrap_or("");
        text.parse()
            .map(Value::Number)
            .map_err(|_| self.error("no value"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_a_report_line() {
        let v = parse(r#"{"a":[1,2,{"b":null}],"c":"x\"y\u0041","d":-1.5e1,"e":true}"#).unwrap();
        assert_eq!(v.get("a").list().len(), 3);
        assert_eq!(v.get("c").text(), "x\"yA");
        assert_eq!(*v.get("d"), Value::Number(-15.0));
        assert_eq!(v.get("a").list()[2].get("b").optional_text(), None);
    }

    #[test]
    fn refuses_what_is_not_json() {
        for bad in [
            "",
            "{",
            "[1,]2",
            "{\"a\" 1}",
            "\"open",
            "{\"a\":1,\"a\":2}",
            "nul",
            "{} x",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
