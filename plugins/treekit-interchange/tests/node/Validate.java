import java.io.File;
import javax.xml.XMLConstants;
import javax.xml.transform.stream.StreamSource;
import javax.xml.validation.SchemaFactory;

/** Holds XML files against a schema: java Validate.java SCHEMA FILE... */
class Validate {
    public static void main(String[] paths) throws Exception {
        var factory = SchemaFactory.newInstance(XMLConstants.W3C_XML_SCHEMA_NS_URI);
        var schema = factory.newSchema(new File(paths[0]));
        for (int i = 1; i < paths.length; i++) {
            schema.newValidator().validate(new StreamSource(new File(paths[i])));
        }
    }
}
