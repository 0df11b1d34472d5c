//! Rows of data for the requests of a run (`--data`): a table shared by all users, and the order in which they take
//! its rows.

use std::sync::Arc;

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

/// The rows that one world takes: every `step`-th from its own number on, so that worlds share them without a lock.
#[derive(Clone, Debug)]
pub struct RowFeed {
    order: RowOrder,
    rows: u64,
    next: u64,
    step: u64,
}

impl RowFeed {
    /// Feed of world `number` among `of` worlds.
    pub fn new(data: &LoadData, number: usize, of: usize) -> RowFeed {
        RowFeed { order: data.order, rows: data.rows.len() as u64, next: number as u64, step: of.max(1) as u64 }
    }

    /// Index of the next row; `None` when the rows are used up ([`RowOrder::Once`]).
    pub fn next_row(&mut self, rng: &mut Rng) -> Option<u32> {
        if self.rows == 0 {
            return None;
        }
        if self.order == RowOrder::Random {
            return Some(rng.below(self.rows) as u32);
        }
        let next = self.next;
        if self.order == RowOrder::Once && next >= self.rows {
            return None;
        }
        self.next += self.step;
        Some((next % self.rows) as u32)
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
        let mut taken = |order, number| {
            let mut feed = RowFeed::new(&data(order), number, 2);
            (0..4).map_while(|_| feed.next_row(&mut rng)).collect::<Vec<u32>>()
        };
        assert_eq!(taken(RowOrder::Order, 0), [0, 2, 4, 1]);
        assert_eq!(taken(RowOrder::Order, 1), [1, 3, 0, 2]);
        assert_eq!(taken(RowOrder::Once, 0), [0, 2, 4]);
        assert_eq!(taken(RowOrder::Once, 1), [1, 3]);
        assert!(taken(RowOrder::Random, 0).iter().all(|row| *row < 5));
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
