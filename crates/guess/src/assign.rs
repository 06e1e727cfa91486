//! The assignment of greatest weight: members to slots.
//!
//! Invariant: exact, in cubic time; no permutations are tried. Called by `fit` for every geometry.

/// Chooses for each row (slot) a different column (member) so that the sum of weights is greatest;
/// `empty` rows may stay without one, for a weight of 0. `None` where fewer columns than needed are
/// left. `forbidden` weights are negative infinity.
///
/// The Hungarian method with potentials, on costs (the negative weights); rows are added one at a
/// time along shortest augmenting paths. H. W. Kuhn 1955, J. Munkres 1957.
pub(crate) fn assign(weights: &[Vec<f64>], empty: usize) -> Option<Vec<Option<usize>>> {
    const FORBIDDEN: f64 = 1e12;
    let rows = weights.len();
    let members = weights.first().map_or(0, Vec::len);
    let columns = members + empty;
    if columns < rows {
        return None;
    }
    let cost = |row: usize, column: usize| match weights[row].get(column) {
        Some(weight) if weight.is_finite() => -weight,
        Some(_) => FORBIDDEN,
        None => 0.0,
    };
    // Index 0 of columns is the start of a path; rows and columns count from 1.
    let mut row_of = vec![0; columns + 1];
    let (mut of_row, mut of_column) = (vec![0.0; rows + 1], vec![0.0; columns + 1]);
    for row in 1..=rows {
        row_of[0] = row;
        let mut column = 0;
        let mut distance = vec![f64::INFINITY; columns + 1];
        let mut before = vec![0; columns + 1];
        let mut done = vec![false; columns + 1];
        while row_of[column] != 0 {
            done[column] = true;
            let at = row_of[column];
            let (mut nearest, mut step) = (0, f64::INFINITY);
            for to in 1..=columns {
                if done[to] {
                    continue;
                }
                let reduced = cost(at - 1, to - 1) - of_row[at] - of_column[to];
                if reduced < distance[to] {
                    (distance[to], before[to]) = (reduced, column);
                }
                if distance[to] < step {
                    (step, nearest) = (distance[to], to);
                }
            }
            for to in 0..=columns {
                if done[to] {
                    of_row[row_of[to]] += step;
                    of_column[to] -= step;
                } else {
                    distance[to] -= step;
                }
            }
            column = nearest;
        }
        while column != 0 {
            let from = before[column];
            row_of[column] = row_of[from];
            column = from;
        }
    }
    let mut chosen = vec![None; rows];
    for column in 1..=columns {
        let row = row_of[column];
        if row > 0 && column <= members {
            if !weights[row - 1][column - 1].is_finite() {
                return None;
            }
            chosen[row - 1] = Some(column - 1);
        }
    }
    Some(chosen)
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::Rng;

    fn weight(weights: &[Vec<f64>], chosen: &[Option<usize>]) -> f64 {
        let pairs = chosen.iter().enumerate();
        pairs.filter_map(|(row, column)| column.map(|column| weights[row][column])).sum()
    }

    /// The greatest weight by trying everything.
    fn greatest(weights: &[Vec<f64>], empty: usize, row: usize, taken: u32) -> f64 {
        let Some(of_row) = weights.get(row) else { return 0.0 };
        let mut best = f64::NEG_INFINITY;
        for (column, weight) in of_row.iter().enumerate() {
            if taken >> column & 1 == 0 && weight.is_finite() {
                let rest = greatest(weights, empty, row + 1, taken | 1 << column);
                best = best.max(weight + rest);
            }
        }
        if empty > 0 {
            best = best.max(greatest(weights, empty - 1, row + 1, taken));
        }
        best
    }

    #[test]
    fn it_is_as_good_as_trying_everything() {
        let mut random = Rng::new(7);
        let mut none = 0;
        for _ in 0..2000 {
            let (rows, members) = (1 + random.below(5) as usize, 1 + random.below(5) as usize);
            let empty = random.below(3) as usize;
            let mut weights = vec![vec![0.0; members]; rows];
            for weight in weights.iter_mut().flatten() {
                *weight = match random.below(6) {
                    0 => f64::NEG_INFINITY,
                    _ => random.below(20) as f64,
                };
            }
            let expected = greatest(&weights, empty, 0, 0);
            match assign(&weights, empty) {
                Some(chosen) => {
                    assert_eq!(weight(&weights, &chosen), expected, "{weights:?} {empty}");
                    let left = chosen.iter().filter(|column| column.is_none()).count();
                    assert!(left <= empty);
                }
                None => {
                    none += 1;
                    assert_eq!(expected, f64::NEG_INFINITY, "{weights:?} {empty}");
                }
            }
        }
        assert!(none > 50 && none < 1900, "{none}");
    }
}
