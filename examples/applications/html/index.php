<?php
// What the server has told PHP about this request.
header('Content-Type: text/plain; charset=utf-8');
header('X-Powered-By: php-fpm');
printf("%s %s\n", $_SERVER['REQUEST_METHOD'], $_SERVER['REQUEST_URI']);
printf("path info: %s\n", $_SERVER['PATH_INFO'] ?? '');
foreach ($_GET as $name => $value) {
    printf("query %s: %s\n", $name, is_array($value) ? 'several' : $value);
}
printf("body: %d bytes, sha1 %s\n", strlen($body = file_get_contents('php://input')), sha1($body));
if (isset($_GET['complain'])) {
    error_log('asked to complain');
}
