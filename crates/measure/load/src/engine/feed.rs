//! Rows of data for the requests of a run (`--data`): a table shared by all users, and the order in which they take
//! its rows.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use figures::rng::Rng;
use serde::{Deserialize, Serialize};

/// Order in which users take rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RowOrder {
    /// From the first to the last, then from the first again.
    #[default]
    Order,
    Random,
    /// Each row once; the load ends with the last.
    Once,
}

/// Values by row and column. Cloning shares the table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<Vec<String>>", into = "Vec<Vec<String>>")]
pub struct DataTable(Arc<Vec<Vec<String>>>);

impl From<Vec<Vec<String>>> for DataTable {
    fn from(rows: Vec<Vec<String>>) -> DataTable {
        DataTable(Arc::new(rows))
    }
}

impl From<DataTable> for Vec<Vec<String>> {
    fn from(table: DataTable) -> Vec<Vec<String>> {
        table.0.to_vec()
    }
}

impl DataTable {
    /// Number of rows.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A value; empty outside of the table.
    pub fn value(&self, row: u32, column: usize) -> &[u8] {
        self.0.get(row as usize).and_then(|row| row.get(column)).map_or(&[], |value| value.as_bytes())
    }
}

/// Data of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadData {
    pub order: RowOrder,
    pub rows: DataTable,
}

/// The rows that the worlds of a machine take. Clones share the place in the table: a world without connections, or a
/// slow one, leaves its rows to the others.
#[derive(Clone, Debug)]
pub struct RowFeed {
    order: RowOrder,
    rows: u64,
    /// Rows of this machine; [`RowOrder::Order`] begins with them and goes on over the whole table.
    part: Range<u64>,
    taken: Arc<AtomicU64>,
}

impl RowFeed {
    /// Feed of the machine that `part` of the table belongs to; the parts of all machines make up the table.
    pub fn new(data: &LoadData, part: Range<u64>) -> RowFeed {
        RowFeed { order: data.order, rows: data.rows.len() as u64, part, taken: Arc::default() }
    }

    /// Feed of the only machine.
    pub fn whole(data: &LoadData) -> RowFeed {
        RowFeed::new(data, 0..data.rows.len() as u64)
    }

    /// Index of the next row; `None` when the rows of this machine are used up ([`RowOrder::Once`]).
    pub fn next_row(&self, rng: &mut Rng) -> Option<u32> {
        if self.rows == 0 {
            return None;
        }
        if self.order == RowOrder::Random {
            return Some(rng.below(self.rows) as u32);
        }
        let next = self.part.start + self.taken.fetch_add(1, Ordering::Relaxed);
        if self.order == RowOrder::Once && next >= self.part.end {
            return None;
        }
        Some((next % self.rows) as u32)
    }

    /// Tells whether rows are used once.
    pub fn is_once(&self) -> bool {
        self.order == RowOrder::Once
    }

    /// Rows of this machine that were not taken ([`RowOrder::Once`]); 0 in other orders.
    pub fn rows_left(&self) -> u64 {
        let next = self.part.start.saturating_add(self.taken.load(Ordering::Relaxed));
        if self.is_once() { self.part.end.saturating_sub(next) } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(order: RowOrder) -> LoadData {
        LoadData { order, rows: (0..5).map(|i| vec![i.to_string()]).collect::<Vec<_>>().into() }
    }

    #[test]
    fn worlds_share_the_rows_in_order() {
        let mut rng = Rng::new(1);
        let mut taken = |order, part: Range<u64>| {
            let feed = RowFeed::new(&data(order), part);
            let other = feed.clone();
            let rows = (0..6).map_while(|i| if i % 3 == 0 { &other } else { &feed }.next_row(&mut rng));
            (rows.collect::<Vec<u32>>(), feed.rows_left())
        };
        assert_eq!(taken(RowOrder::Order, 0..5), (vec![0, 1, 2, 3, 4, 0], 0));
        assert_eq!(taken(RowOrder::Order, 3..5), (vec![3, 4, 0, 1, 2, 3], 0));
        assert_eq!(taken(RowOrder::Once, 0..5), (vec![0, 1, 2, 3, 4], 0));
        assert_eq!(taken(RowOrder::Once, 3..5), (vec![3, 4], 0));
        assert_eq!(taken(RowOrder::Once, 2..2), (vec![], 0));
        assert!(taken(RowOrder::Random, 0..5).0.iter().all(|row| *row < 5));
        let feed = RowFeed::whole(&data(RowOrder::Once));
        assert_eq!((feed.next_row(&mut rng), feed.rows_left()), (Some(0), 4));
    }

    #[test]
    fn a_table_survives_the_way_to_a_worker() {
        let data = data(RowOrder::Once);
        let text = serde_json::to_string(&data).unwrap();
        assert_eq!(serde_json::from_str::<LoadData>(&text).unwrap(), data);
        assert_eq!(
            (data.rows.value(4, 0), data.rows.value(4, 1), data.rows.value(9, 0)),
            (&b"4"[..], &b""[..], &b""[..])
        );
    }
}
