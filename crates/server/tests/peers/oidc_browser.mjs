// Logs a user in and out with Chromium, by playwright-core. Arguments: the browser's program, and the address of the site.
// Prints a line of JSON for each step.
import { chromium } from 'playwright-core';

const [executablePath, site] = process.argv.slice(2);
const browser = await chromium.launch({ executablePath, args: ['--no-sandbox', '--disable-gpu'] });
const page = await (await browser.newContext()).newPage();
const show = (step, response) => console.log(JSON.stringify({
  step, at: page.url().replace(/interaction\/.*/, 'interaction'), status: response?.status() ?? 0,
  user: response?.headers()['x-user'] ?? '',
}));

show('before', await page.goto(`${site}/rs256?a=b%20c`));
await page.fill('input[name=login]', 'joe');
await page.fill('input[name=password]', 'any');
await page.click('button[type=submit]');
await page.waitForSelector('input[value=consent]', { state: 'attached' });
show('consent');
await page.click('button[type=submit]');
await page.waitForURL(`${site}/**`);
show('inside', await page.reload());
show('elsewhere', await page.goto(`${site}/rs256/page`));
await page.goto(`${site}/logout/rs256`);
show('leaving');
await page.click('button[value=yes]');
await page.waitForURL(`${site}/left*`);
show('left');
show('after', await page.goto(`${site}/rs256`));
await browser.close();
