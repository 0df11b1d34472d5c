<?php
header('Content-Type: text/html; charset=utf-8');
$name = htmlspecialchars($_GET['name'] ?? 'visitor');
echo "<!doctype html><title>PHP behind</title><p>Hello, $name, from PHP; you come from {$_SERVER['HTTP_X_REAL_IP']}.</p><img src=\"harbour.svg\" alt=\"\">\n";
