//! Pixel operations.

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pixels {
    pub width: usize,
    pub height: usize,
    pub bytes: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
pub struct ResizeOptions {
    pub bounds: Option<(u64, u64)>,
    /// Fills the bounds and crops the excess.
    pub crop: bool,
    /// Degrees counter-clockwise.
    pub angle: u64,
    /// Strength of sharpening, in percent.
    pub sharpen: u64,
    pub force: bool,
}

impl ResizeOptions {
    /// Tells whether an image of this size needs no change.
    pub fn is_met(&self, width: usize, height: usize) -> bool {
        let fits = |(most_wide, most_high): (u64, u64)| width as u64 <= most_wide && height as u64 <= most_high;
        !self.force && self.angle == 0 && self.bounds.is_some_and(fits)
    }
    pub fn size(&self, width: usize, height: usize) -> (usize, usize) {
        let Some((most_wide, most_high)) = self.bounds else { return (width, height) };
        let (mut wide, mut high) = (width as u64, height as u64);
        let narrower = |wide: u64, high: u64| (most_wide, (high.saturating_mul(most_wide) / wide).max(1));
        let lower = |wide: u64, high: u64| ((wide.saturating_mul(most_high) / high).max(1), most_high);
        match self.crop {
            false => {
                if wide > most_wide {
                    (wide, high) = narrower(wide, high);
                }
                if high > most_high {
                    (wide, high) = lower(wide, high);
                }
            }
            true if (wide as f64 / high as f64) < (most_wide as f64 / most_high as f64) => {
                if wide > most_wide {
                    (wide, high) = narrower(wide, high);
                }
            }
            true => {
                if high > most_high {
                    (wide, high) = lower(wide, high);
                }
            }
        }
        (wide as usize, high as usize)
    }
    /// Nginx's order: resize, rotate, crop, sharpen.
    pub fn apply(&self, mut pixels: Pixels) -> Pixels {
        let (width, height) = self.size(pixels.width, pixels.height);
        if (width, height) != (pixels.width, pixels.height) {
            pixels = pixels.smaller(width, height);
        }
        pixels = match self.angle {
            90 | 180 | 270 => pixels.turned(self.angle),
            _ => pixels,
        };
        if let Some((most_wide, most_high)) = self.bounds.filter(|_| self.crop) {
            pixels = pixels.cut(most_wide, most_high);
        }
        if self.sharpen > 0 && self.sharpen != super::ANY {
            pixels = pixels.sharper(self.sharpen.min(i32::MAX as u64) as f32);
        }
        pixels
    }
}

/// Weights of neighbours for a new pixel.
struct PixelSpan {
    start: usize,
    weights: Vec<f32>,
}

/// Old pixels covered by each of `new` pixels.
fn spans(old: usize, new: usize) -> Vec<PixelSpan> {
    let scale = old as f64 / new as f64;
    (0..new)
        .map(|index| {
            let (from, to) = (index as f64 * scale, ((index + 1) as f64 * scale).min(old as f64));
            let (start, end) = (from.floor() as usize, (to.ceil() as usize).min(old));
            let covered = |at: usize| ((to.min(at as f64 + 1.0) - from.max(at as f64)) / (to - from)) as f32;
            PixelSpan { start, weights: (start..end).map(covered).collect() }
        })
        .collect()
}

/// Reduces an image row by row ([`Pixels::smaller`]), without keeping the original.
pub struct Smaller {
    across: Vec<PixelSpan>,
    down: std::iter::Peekable<std::vec::IntoIter<PixelSpan>>,
    y: usize,
    sums: Vec<[f32; 4]>,
    line: Vec<[f32; 4]>,
    made: Pixels,
}

impl Smaller {
    /// Neither dimension may grow.
    pub fn new(old: (usize, usize), (width, height): (usize, usize)) -> Smaller {
        let line = vec![[0f32; 4]; width];
        Smaller {
            across: spans(old.0, width),
            down: spans(old.1, height).into_iter().peekable(),
            y: 0,
            sums: line.clone(),
            line,
            made: Pixels { width, height, bytes: Vec::with_capacity(width * height * 4) },
        }
    }
    pub fn add(&mut self, row: &[u8]) {
        let mut is_read = false;
        // A row may end one span and begin the next.
        while let Some(span) = self.down.peek()
            && span.start <= self.y
        {
            let Some(weight) = span.weights.get(self.y - span.start) else { return };
            if !is_read {
                mean_line(row, &self.across, &mut self.line);
                is_read = true;
            }
            for (sum, value) in self.sums.iter_mut().zip(&self.line) {
                sum.iter_mut().zip(value).for_each(|(sum, value)| *sum += value * weight);
            }
            if self.y + 1 < span.start + span.weights.len() {
                break;
            }
            self.down.next();
            self.row_is_done();
        }
        self.y += 1;
    }
    fn row_is_done(&mut self) {
        for [red, green, blue, alpha] in &self.sums {
            let colour = |sum: &f32| if *alpha > 0.0 { (sum / alpha * 255.0 + 0.5) as u8 } else { (sum + 0.5) as u8 };
            self.made.bytes.extend_from_slice(&[colour(red), colour(green), colour(blue), (alpha + 0.5) as u8]);
        }
        self.sums.fill([0.0; 4]);
    }
    /// Missing rows are empty.
    pub fn done(mut self) -> Pixels {
        self.made.bytes.resize(self.made.width * self.made.height * 4, 0);
        self.made
    }
}

fn mean_line(row: &[u8], across: &[PixelSpan], out: &mut [[f32; 4]]) {
    let (row, _) = row.as_chunks::<4>();
    for (span, out) in across.iter().zip(out) {
        *out = [0.0; 4];
        for ([red, green, blue, alpha], weight) in row.get(span.start..).unwrap_or_default().iter().zip(&span.weights) {
            let opaque = f32::from(*alpha) * weight;
            let colour = opaque / 255.0;
            out[0] += f32::from(*red) * colour;
            out[1] += f32::from(*green) * colour;
            out[2] += f32::from(*blue) * colour;
            out[3] += opaque;
        }
    }
}

impl Pixels {
    fn row(&self, y: usize) -> &[u8] {
        let length = self.width * 4;
        self.bytes.get(y * length..(y + 1) * length).unwrap_or_default()
    }
    fn pixel(&self, x: usize, y: usize) -> [u8; 4] {
        let at = (y * self.width + x) * 4;
        self.bytes.get(at..).and_then(|rest| rest.first_chunk()).copied().unwrap_or_default()
    }
    fn made(width: usize, height: usize, pixel: impl Fn(usize, usize) -> [u8; 4]) -> Pixels {
        let mut bytes = Vec::with_capacity(width * height * 4);
        for y in 0..height {
            for x in 0..width {
                bytes.extend_from_slice(&pixel(x, y));
            }
        }
        Pixels { width, height, bytes }
    }

    pub fn smaller(&self, width: usize, height: usize) -> Pixels {
        let mut smaller = Smaller::new((self.width, self.height), (width, height));
        (0..self.height).for_each(|y| smaller.add(self.row(y)));
        smaller.done()
    }

    pub fn turned(&self, angle: u64) -> Pixels {
        let (width, height) = (self.width, self.height);
        match angle {
            90 => Pixels::made(height, width, |x, y| self.pixel(width - 1 - y, x)),
            180 => Pixels::made(width, height, |x, y| self.pixel(width - 1 - x, height - 1 - y)),
            _ => Pixels::made(height, width, |x, y| self.pixel(y, height - 1 - x)),
        }
    }

    pub fn cut(self, most_wide: u64, most_high: u64) -> Pixels {
        let over = |length: usize, most: u64| length - (length as u64).min(most) as usize;
        let (wide, high) = (over(self.width, most_wide), over(self.height, most_high));
        if wide == 0 && high == 0 {
            return self;
        }
        let (left, top) = (wide / 2, high / 2);
        Pixels::made(self.width - wide, self.height - high, |x, y| self.pixel(x + left, y + top))
    }

    /// Sharpens rows, then columns (GD: `gdImageSharpen`).
    pub fn sharper(&self, percent: f32) -> Pixels {
        let outer = -percent / 400.0;
        let inner = 1.0 - 2.0 * outer;
        let mix = |before: [u8; 4], this: [u8; 4], after: [u8; 4]| {
            let mut out = this;
            for (index, out) in out.iter_mut().enumerate().take(3) {
                let value = |pixel: [u8; 4]| f32::from(pixel.get(index).copied().unwrap_or(0));
                *out = (inner * value(this) + outer * (value(before) + value(after))).clamp(0.0, 255.0) as u8;
            }
            out
        };
        let (width, height) = (self.width, self.height);
        let rows = Pixels::made(width, height, |x, y| {
            mix(self.pixel(x.saturating_sub(1), y), self.pixel(x, y), self.pixel((x + 1).min(width - 1), y))
        });
        Pixels::made(width, height, |x, y| {
            mix(rows.pixel(x, y.saturating_sub(1)), rows.pixel(x, y), rows.pixel(x, (y + 1).min(height - 1)))
        })
    }
}
