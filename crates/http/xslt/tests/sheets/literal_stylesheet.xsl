<!-- books.xml -->
<html xsl:version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform"><body><xsl:value-of select="count(//book)"/></body></html>
