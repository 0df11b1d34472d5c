//! What is done to pixels.

/// Pixels of four bytes: red, green, blue, and how opaque they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pixels {
    pub width: usize,
    pub height: usize,
    pub bytes: Vec<u8>,
}

/// What is wanted of a picture.
#[derive(Clone, Copy, Debug)]
pub struct Wish {
    /// The greatest width and height, if it is to be made smaller.
    pub bounds: Option<(u64, u64)>,
    /// It is to fill them, and what stands over is cut off.
    pub crop: bool,
    /// Degrees, counter-clockwise; 0: it is not turned.
    pub angle: u64,
    /// Per cent.
    pub sharpen: u64,
    /// It is written anew even where it is as it should be.
    pub force: bool,
}

impl Wish {
    /// Nothing is to be done with a picture of this size.
    pub fn is_met(&self, width: usize, height: usize) -> bool {
        let fits = |(most_wide, most_high): (u64, u64)| width as u64 <= most_wide && height as u64 <= most_high;
        !self.force && self.angle == 0 && self.bounds.is_some_and(fits)
    }
    /// The size that a picture is made smaller to.
    fn size(&self, width: usize, height: usize) -> (usize, usize) {
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
    /// Does it all, in nginx's order: smaller, turned, cut, sharper.
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

/// How much each of some neighbours counts for a new pixel.
struct Span {
    start: usize,
    weights: Vec<f32>,
}

/// For each of `new` pixels in a row, the old ones that it covers.
fn spans(old: usize, new: usize) -> Vec<Span> {
    let scale = old as f64 / new as f64;
    (0..new)
        .map(|index| {
            let (from, to) = (index as f64 * scale, ((index + 1) as f64 * scale).min(old as f64));
            let (start, end) = (from.floor() as usize, (to.ceil() as usize).min(old));
            let covered = |at: usize| ((to.min(at as f64 + 1.0) - from.max(at as f64)) / (to - from)) as f32;
            Span { start, weights: (start..end).map(covered).collect() }
        })
        .collect()
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
    /// Makes a picture of this size, pixel by pixel.
    fn made(width: usize, height: usize, pixel: impl Fn(usize, usize) -> [u8; 4]) -> Pixels {
        let mut bytes = Vec::with_capacity(width * height * 4);
        for y in 0..height {
            for x in 0..width {
                bytes.extend_from_slice(&pixel(x, y));
            }
        }
        Pixels { width, height, bytes }
    }

    /// Each new pixel is the mean of what it covers; what cannot be seen does not count.
    pub fn smaller(&self, width: usize, height: usize) -> Pixels {
        let (across, down) = (spans(self.width, width), spans(self.height, height));
        let mut bytes = Vec::with_capacity(width * height * 4);
        let (mut sums, mut line) = (vec![[0f32; 4]; width], vec![[0f32; 4]; width]);
        for span in &down {
            sums.fill([0.0; 4]);
            for (y, weight) in span.weights.iter().enumerate() {
                self.mean_line(span.start + y, &across, &mut line);
                for (sum, value) in sums.iter_mut().zip(&line) {
                    sum.iter_mut().zip(value).for_each(|(sum, value)| *sum += value * weight);
                }
            }
            for [red, green, blue, alpha] in &sums {
                let colour =
                    |sum: &f32| if *alpha > 0.0 { (sum / alpha * 255.0 + 0.5) as u8 } else { (sum + 0.5) as u8 };
                bytes.extend_from_slice(&[colour(red), colour(green), colour(blue), (alpha + 0.5) as u8]);
            }
        }
        Pixels { width, height, bytes }
    }
    /// One row of it: colours count as much as they are opaque.
    fn mean_line(&self, y: usize, across: &[Span], out: &mut [[f32; 4]]) {
        let (row, _) = self.row(y).as_chunks::<4>();
        for (span, out) in across.iter().zip(out) {
            *out = [0.0; 4];
            for ([red, green, blue, alpha], weight) in
                row.get(span.start..).unwrap_or_default().iter().zip(&span.weights)
            {
                let opaque = f32::from(*alpha) * weight;
                let colour = opaque / 255.0;
                out[0] += f32::from(*red) * colour;
                out[1] += f32::from(*green) * colour;
                out[2] += f32::from(*blue) * colour;
                out[3] += opaque;
            }
        }
    }

    /// Turned counter-clockwise.
    pub fn turned(&self, angle: u64) -> Pixels {
        let (width, height) = (self.width, self.height);
        match angle {
            90 => Pixels::made(height, width, |x, y| self.pixel(width - 1 - y, x)),
            180 => Pixels::made(width, height, |x, y| self.pixel(width - 1 - x, height - 1 - y)),
            _ => Pixels::made(height, width, |x, y| self.pixel(y, height - 1 - x)),
        }
    }

    /// The middle, no larger than this.
    pub fn cut(self, most_wide: u64, most_high: u64) -> Pixels {
        let over = |length: usize, most: u64| length - (length as u64).min(most) as usize;
        let (wide, high) = (over(self.width, most_wide), over(self.height, most_high));
        if wide == 0 && high == 0 {
            return self;
        }
        let (left, top) = (wide / 2, high / 2);
        Pixels::made(self.width - wide, self.height - high, |x, y| self.pixel(x + left, y + top))
    }

    /// Each pixel differs more from its neighbours, first along rows and then along columns (GD: `gdImageSharpen`).
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
