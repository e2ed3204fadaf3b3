//! CSV files, tables in Markdown, and gathering the repetitions that belong together. Called by `figures` and `zcopy`.

use std::fs;
use std::path::Path;

use anyhow::Context as _;
use serde::Serialize;

use crate::stats::{Quartiles, short};

/// One line for each row; the names of the fields are the head, and what is unknown stays blank.
pub(crate) fn write_csv<T: Serialize>(folder: &Path, name: &str, rows: &[T]) -> anyhow::Result<()> {
    fs::create_dir_all(folder)?;
    let path = folder.join(format!("{name}.csv"));
    let mut writer = csv::Writer::from_path(&path).with_context(|| path.display().to_string())?;
    for row in rows {
        writer.serialize(row)?;
    }
    writer.flush()?;
    Ok(())
}

/// The items by what `key` says of them, in the order in which the keys first came.
pub(crate) fn groups<T, K: PartialEq>(items: &[T], key: impl Fn(&T) -> K) -> Vec<(K, Vec<&T>)> {
    let mut groups: Vec<(K, Vec<&T>)> = Vec::new();
    for item in items {
        let of = key(item);
        match groups.iter_mut().find(|(other, _)| *other == of) {
            Some((_, members)) => members.push(item),
            None => groups.push((of, vec![item])),
        }
    }
    groups
}

/// What `key` says of the items, each once, in the order in which they first came.
pub(crate) fn keys<T, K: PartialEq>(items: &[T], key: impl Fn(&T) -> K) -> Vec<K> {
    let groups = groups(items, key).into_iter();
    groups.map(|(key, _)| key).collect()
}

/// The median of those values that are known.
pub(crate) fn median<T>(items: &[&T], of: impl Fn(&T) -> Option<f64>) -> Option<f64> {
    spread(items, of).map(|spread| spread.median)
}

pub(crate) fn spread<T>(items: &[&T], of: impl Fn(&T) -> Option<f64>) -> Option<Quartiles> {
    Quartiles::of(items.iter().filter_map(|item| of(item)))
}

/// A table in Markdown.
pub(crate) struct Table(String);

impl Table {
    pub(crate) fn new<S: AsRef<str>>(head: impl IntoIterator<Item = S>) -> Self {
        let mut table = Self(String::new());
        let columns = table.row(head);
        table.row(std::iter::repeat_n("---", columns));
        table
    }

    /// Returns how many cells there were.
    pub(crate) fn row<S: AsRef<str>>(&mut self, cells: impl IntoIterator<Item = S>) -> usize {
        let mut count = 0;
        for cell in cells {
            self.0 += if count == 0 { "| " } else { " | " };
            self.0 += cell.as_ref();
            count += 1;
        }
        self.0 += " |\n";
        count
    }

    pub(crate) fn text(self) -> String {
        self.0
    }
}

/// Three digits, or a dash for what is unknown.
pub(crate) fn number(value: Option<f64>) -> String {
    value.map_or("–".into(), short)
}

/// Median, and the quartiles in brackets.
pub(crate) fn quartiles(value: Option<Quartiles>) -> String {
    let words = |q: Quartiles| format!("{} ({}–{})", short(q.median), short(q.q1), short(q.q3));
    value.map_or("–".into(), words)
}

/// The mark of an axis: as short as it can be.
pub(crate) fn tick(value: f64) -> String {
    let near = (value * 1e6).round() / 1e6;
    if near.abs() >= 1e4 {
        short(near)
    } else {
        near.to_string()
    }
}

/// A number of bytes as the thesis writes it: 1, 64, 1k, 1M.
pub(crate) fn size(bytes: f64) -> String {
    match bytes {
        n if n >= 1_048_576.0 => format!("{}M", n / 1_048_576.0),
        n if n >= 1024.0 => format!("{}k", n / 1024.0),
        n => n.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_keep_their_order() {
        let items = [("b", 1), ("a", 2), ("b", 3)];
        let groups = groups(&items, |item| item.0);
        assert_eq!(groups.len(), 2);
        assert_eq!(groups[0], ("b", vec![&("b", 1), &("b", 3)]));
    }

    #[test]
    fn unknown_values_are_left_out() {
        let items = [Some(1.0), None, Some(3.0)];
        let known: Vec<&Option<f64>> = items.iter().collect();
        assert_eq!(median(&known, |v| *v), Some(2.0));
        assert_eq!(median(&known[1..2], |v| *v), None);
    }

    #[test]
    fn tables_and_sizes() {
        let mut table = Table::new(["a", "b"]);
        table.row(["1", "2"]);
        assert_eq!(table.text(), "| a | b |\n| --- | --- |\n| 1 | 2 |\n");
        assert_eq!([1.0, 65_536.0, 1_048_576.0].map(size), ["1", "64k", "1M"]);
        assert_eq!(number(None), "–");
        assert_eq!([0.0, 0.1 + 0.2, 1000.0].map(tick), ["0", "0.3", "1000"]);
    }

    #[test]
    fn unknown_is_blank_in_csv() {
        #[derive(Serialize)]
        struct Row {
            name: &'static str,
            count: Option<u64>,
        }
        let folder = std::env::temp_dir().join(format!("shunt-table-{}", std::process::id()));
        let rows = [
            Row {
                name: "a,b",
                count: None,
            },
            Row {
                name: "c",
                count: Some(4),
            },
        ];
        write_csv(&folder, "t", &rows).unwrap();
        let text = fs::read_to_string(folder.join("t.csv")).unwrap();
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(text, "name,count\n\"a,b\",\nc,4\n");
    }
}
