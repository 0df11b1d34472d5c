//! Formulas of queueing theory: waiting at a utilisation, knees, Little's law, bounds.

/// Response time over service time of an M/M/m queue at utilisation `rho`; 1 when idle, infinite from 1 on.
pub fn response_stretch(rho: f64, m: u32) -> f64 {
    if rho <= 0.0 {
        return 1.0;
    }
    if rho >= 1.0 {
        return f64::INFINITY;
    }
    1.0 + erlang_c(rho, m) / (f64::from(m.max(1)) * (1.0 - rho))
}

/// Probability of waiting in an M/M/m queue (Erlang C), by the stable recursion over Erlang B.
pub fn erlang_c(rho: f64, m: u32) -> f64 {
    let m = m.max(1);
    let load = rho * f64::from(m);
    let b = (1..=m).fold(1.0, |b, k| load * b / (f64::from(k) + load * b));
    b / (1.0 - rho * (1.0 - b))
}

/// Utilisation at the open-loop knee of `m` servers, (1/(m+1))^(1/m): a ray from the origin touches R/S = 1/(1−ρᵐ).
pub fn knee(m: u32) -> f64 {
    let m = f64::from(m.max(1));
    (1.0 / (m + 1.0)).powf(1.0 / m)
}

/// Concurrency above which a closed system queues or saturates: (R₀+Z)/D_max (Gunther); times in seconds.
pub fn optimal_concurrency(response_idle: f64, think: f64, demand_max: f64) -> f64 {
    (response_idle + think) / demand_max
}

/// Users that produce a rate: λ·(R+Z).
pub fn users(rate: f64, response: f64, think: f64) -> f64 {
    rate * (response + think)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn erlang_c_as_in_the_tables() {
        // M/M/1: P(wait) = ρ. M/M/2 at ρ = 0.5: 1/3. Ten servers offered 8 erlangs: 0.409.
        assert!((erlang_c(0.7, 1) - 0.7).abs() < 1e-12);
        assert!((erlang_c(0.5, 2) - 1.0 / 3.0).abs() < 1e-12);
        assert!((erlang_c(0.8, 10) - 0.409).abs() < 5e-4);
    }

    #[test]
    fn a_queue_at_99_percent() {
        // M/M/2 answers 50 times slower than idle, M/M/16 seven times.
        assert!((response_stretch(0.99, 2) - 50.25).abs() < 0.05, "{}", response_stretch(0.99, 2));
        assert!((response_stretch(0.99, 16) - 7.0).abs() < 0.2, "{}", response_stretch(0.99, 16));
        assert!(response_stretch(1.0, 4).is_infinite());
        assert_eq!(response_stretch(0.0, 4), 1.0);
    }

    #[test]
    fn knees_as_published() {
        for (m, expected) in [(1, 0.5), (2, 0.58), (4, 0.67), (8, 0.76), (16, 0.84), (32, 0.90)] {
            assert!((knee(m) - expected).abs() < 0.005, "{m}: {}", knee(m));
        }
        assert!((knee(8) - 0.7598).abs() < 5e-5);
    }

    #[test]
    fn littles_law() {
        assert_eq!(users(100.0, 0.5, 9.5), 1000.0);
        assert_eq!(optimal_concurrency(0.01, 0.0, 0.001), 10.0);
    }
}
